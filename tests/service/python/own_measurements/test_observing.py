"""Observations in Python: lists and tables, compared with the answers and reported."""

import pytest

import forerun
from tests.service.conftest import linear_row

ROWS = [linear_row(size, 0.001 * size) for size in range(256, 6_400, 256)]


def test_observations_are_compared_reported_and_taken_back():
    before = forerun.devices()["l4"].name
    made = forerun.observe(ROWS, device=before)
    assert (made.device, made.rows, made.judged, made.left_out) == ("l4", len(ROWS), len(ROWS), 0)
    assert made.is_new
    assert made.errors["latency_ms"].rows == len(ROWS)
    again = forerun.observe(ROWS, device="l4")
    assert (again.set_id, again.is_new) == (made.set_id, False)
    report = forerun.drift("l4")
    assert report.alarms == ()
    (row,) = report.records()
    assert (row["metric"], row["device"], row["rows"]) == ("latency_ms", "l4", len(ROWS))
    assert row["live_mape"] == pytest.approx(made.errors["latency_ms"].mape)
    assert "no lasting change" in str(report)
    assert "have an answer" in str(made)
    (record,) = made.records()
    assert record["metric"] == "latency_ms"
    made.undo()
    assert forerun.drift().report.observations == {}


def test_an_unknown_device_and_a_wrong_value_are_refused():
    with pytest.raises(forerun.InputError, match="No device named 'l5'"):
        forerun.drift("l5")
    with pytest.raises(forerun.InputError, match="measurement 0"):
        forerun.observe([linear_row(64, -1.0)], device="l4")
