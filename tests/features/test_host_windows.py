"""Windows: what may be a feature and why, and statistics that forgive what is missing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.workload import HostWindow
from forerun.features.host_windows import (
    HOST_METRICS,
    NAMES,
    RESOURCES,
    level,
    metrics_of,
    missing_metrics,
    statistics,
    window_of,
    window_values,
)

COUNTED = ("per_s", "faults", "pgfault", "forks", "ctxt", "processes", "thp", "packets", "bytes")


def test_no_rate_of_a_count_may_be_a_feature():
    assert not [name for name in HOST_METRICS if any(word in name for word in COUNTED)]
    assert not [name for name in HOST_METRICS if "avg10" in name]


def test_every_feature_has_its_reason_and_every_resource_a_metric():
    assert all(metric.reason for metric in HOST_METRICS.values())
    assert sorted(name for one in RESOURCES for name in metrics_of(one)) == sorted(NAMES)
    assert all(metrics_of(resource) for resource in RESOURCES)


def test_counts_in_a_window_are_passed_over():
    window = HostWindow(("vmstat.pgfault_per_s", "cpu.user_share"), ((5e4, 0.5),))
    values = window_values(window)
    assert np.isfinite(values).sum() == 1
    assert values[0, NAMES.index("cpu.user_share")] == 0.5


def test_an_empty_window_has_no_level():
    assert np.isnan(level(HostWindow())).all()
    assert np.isnan(level(HostWindow(("cpu.user_share",), ()))).all()


def test_what_is_missing_is_named():
    window = HostWindow(("cpu.user_share", "probe.evicted"), ((0.5, float("nan")),))
    assert missing_metrics(level(window), ("cpu.user_share", "probe.evicted")) == ("probe.evicted",)


@given(
    st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20),
    st.lists(st.booleans(), min_size=20, max_size=20),
)
def test_statistics_of_what_is_there_are_those_without_what_is_not(values, kept):
    series = np.array(values)
    mask = np.array(kept[: len(series)])
    with_gaps = np.where(mask, series, np.nan)[None, :, None]
    middle, spread, most, _ = statistics(with_gaps)[0, :, 0]
    if not mask.any():
        assert np.isnan([middle, spread, most]).all()
        return
    seen = series[mask]
    assert middle == pytest.approx(np.median(seen))
    assert spread == pytest.approx(np.percentile(seen, 90) - np.percentile(seen, 10), abs=1e-6)
    assert most == seen.max()


def test_the_trend_is_the_slope_of_a_line_whatever_is_missing():
    line = 2.0 + 0.25 * np.arange(10.0)
    line[[1, 4, 5]] = np.nan
    assert statistics(line[None, :, None])[0, 3, 0] == pytest.approx(0.25)
    assert np.isnan(statistics(line[None, :2, None])[0, 3, 0])


def test_a_level_becomes_a_window_again():
    window = HostWindow(("cpu.user_share", "probe.latency_ns"), ((0.5, 30.0),))
    again = window_of(level(window))
    values_by_metric = dict(zip(again.metrics, again.seconds[0], strict=True))
    assert values_by_metric == pytest.approx({"cpu.user_share": 0.5, "probe.latency_ns": 30.0})
    most = np.full(len(NAMES), 9.0)
    shares = dict(zip(window_of(most).metrics, window_of(most).seconds[0], strict=True))
    assert shares["probe.evicted"] == 1.0
    assert dict(zip(window_of(-most).metrics, window_of(-most).seconds[0], strict=True))[
        "cpu.user_share"
    ] == pytest.approx(0.0)
