"""Ingestion checks find rows that no device can have measured, repeats and contradictions."""

import numpy as np
import pandas as pd
import pytest

from forerun.data.errors import BadTable
from forerun.data.own_tables.tidy import Description, Hardware, findings_of

TABLE = Description("mine", "settings", ("latency_ms", "power_w", "peak_memory_mib"), ("n",))


def found(latency_ms, n=None, power_w=50.0, memory_mib=100.0, **more):
    rows = len(latency_ms)
    frame = pd.DataFrame(
        {"device": "l4", "model": "", "n": n or range(rows), "latency_ms": latency_ms}
    ).assign(power_w=power_w, peak_memory_mib=memory_mib, **more)
    hardware = Hardware(np.full(rows, 1.0), np.full(rows, 72.0), np.full(rows, 24_000.0))
    findings = findings_of(frame, TABLE, hardware)
    return sorted(zip(findings["row"], findings["flag"], strict=True))


def test_plausible_rows_carry_no_flag():
    assert found([1.0, 2.0, 3.0]) == []


def test_a_time_below_the_bound_is_impossible():
    assert found([0.5, 2.0, 3.0]) == [(0, "impossible")]


def test_where_most_times_are_below_the_bound_the_unit_is_wrong():
    with pytest.raises(BadTable, match=r"2 of 3 times .*row 1: 0\.001 ms, at least 1 ms"):
        found([0.001, 0.002, 3.0])


def test_repeats_and_contradictions_of_one_question():
    assert found([2.0, 2.0, 3.0], n=[1, 1, 2]) == [(1, "duplicate")]
    assert found([2.0, 3.9], n=[1, 1]) == [], "up to a factor of 2 is noise"
    assert found([2.0, 4.1, 9.0], n=[1, 1, 2]) == [(0, "conflict"), (1, "conflict")]


def test_a_row_without_a_time_and_one_over_the_power_or_memory_of_the_device():
    assert found([np.nan, 2.0]) == [(0, "unmeasured")]
    assert found([2.0], power_w=100.0) == [(0, "over_power")]
    assert found([2.0], memory_mib=25_000.0) == [(0, "impossible")]


def test_a_share_in_percent_is_refused():
    with pytest.raises(BadTable, match="utilization_percent"):
        found([2.0], utilisation=87.0)
