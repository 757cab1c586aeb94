"""The probe's rows survive a kill, and its curve says how large the cache really is."""

import pytest

from forerun.data.collectors.interference import victims as native
from forerun.data.collectors.interference.cache_probe import (
    COLUMNS,
    CacheProbe,
    effective_mib,
    ticks,
)
from tests.waiting import eventually

HEAD = ",".join(COLUMNS)
ROW = "12.5,0.1,22.5,30,0.05,38,0.5,69"
needs_compiler = pytest.mark.skipif(native.compiler() is None, reason="no C compiler here")


def test_rows_are_read_and_torn_ones_and_heads_are_passed_over():
    text = f"{HEAD}\n{ROW}\n{ROW[:-4]}\n{HEAD}\n{ROW}\n12.6,0.1"
    found = list(ticks(text))
    assert len(found) == 2
    assert found[0]["latency_ns"] == 22.5
    assert list(ticks("")) == []


def test_the_effective_size_is_where_loads_become_slow():
    curve = [{"mib": m, "ns": 12.0 if m <= 6 else 140.0} for m in (1, 2, 4, 6, 8, 16, 64)]
    assert effective_mib(curve) == 6
    assert effective_mib([]) is None
    assert effective_mib([{"mib": 8.0, "ns": 100.0}]) is None


@needs_compiler
def test_it_writes_a_row_a_tick_until_it_is_stopped(tmp_path, compiled):
    probe = CacheProbe(tmp_path / "probe.csv", -1, 5.0)
    probe.start()
    try:
        eventually(lambda: len(list(ticks(probe.path.read_text()))) >= 3)
    finally:
        probe.stop()
    probe.stop()
    rows = list(ticks(probe.path.read_text()))
    assert all(row["latency_ns"] > 0 and 0 <= row["evicted"] <= 1 for row in rows)
    times = [row["t_s"] for row in rows]
    assert times == sorted(times)
