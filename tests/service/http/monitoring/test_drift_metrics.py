"""Metrics of slices: bounded in number, those of the most observations."""

from forerun.service.http.monitoring import gauges as drift_metrics
from forerun.service.http.monitoring.gauges import metrics_of
from forerun.service.schemas.measurements import DriftOut, LiveErrorOut, SliceOut


def report(*rows, coverage=50.0) -> DriftOut:
    live = LiveErrorOut(
        rows=7, mape=12.0, median_ape=10.0, bias=-0.1, rows_with_interval=7, coverage_90=coverage
    )
    slices = [
        SliceOut(
            metric="latency_ms", device="l4", kind=None, family=f"f{n}", precision=None,
            rows=count, live=live, changes=[], alarm=n == 0,
        )
        for n, count in enumerate(rows)
    ]  # fmt: skip
    return DriftOut(observations={"l4": 7}, alarms=[], slices=slices)


def values(given):
    return {
        metric.name: {s.labels["family"]: s.value for s in metric.samples}
        for metric in metrics_of(given)
    }


def test_each_slice_has_a_value_in_each_metric():
    found = values(report(30, 20))
    assert found == {
        "forerun_live_observations": {"f0": 7, "f1": 7},
        "forerun_live_error_ratio": {"f0": 0.12, "f1": 0.12},
        "forerun_live_bias": {"f0": -0.1, "f1": -0.1},
        "forerun_live_coverage_ratio": {"f0": 0.5, "f1": 0.5},
        "forerun_drift_alarm": {"f0": 1.0, "f1": 0.0},
    }


def test_a_coverage_that_is_not_known_is_left_out():
    assert values(report(30, coverage=None))["forerun_live_coverage_ratio"] == {}


def test_the_slices_of_most_observations_are_exported(monkeypatch):
    monkeypatch.setattr(drift_metrics, "MOST_SLICES", 2)
    assert set(values(report(20, 90, 40))["forerun_live_bias"]) == {"f1", "f2"}


def test_without_observations_there_are_no_metrics():
    assert values(report()) == {}
