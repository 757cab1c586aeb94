"""Live errors and alarms by slice as metrics for Prometheus."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from forerun.service.schemas.observations import DriftOut, SliceOut

MOST_SLICES: Final = 200
"""Slices that are exported, those of the most observations; each has a value in every metric."""
LABELS: Final = ("metric", "device", "version", "kind", "family", "precision")
_VALUES: Final[Mapping[str, tuple[str, Callable[[SliceOut], float | None]]]] = {
    "forerun_live_observations": (
        "Observations with which the answers of now are compared",
        lambda own: own.live.rows,
    ),
    "forerun_live_error_ratio": (
        "Mean absolute error of answers over the measured value",
        lambda own: own.live.mape / 100,
    ),
    "forerun_live_bias": (
        "Median of log(measured / answered)",
        lambda own: own.live.bias,
    ),
    "forerun_live_coverage_ratio": (
        "Share of measured values inside their 90 % interval",
        lambda own: None if own.live.coverage_90 is None else own.live.coverage_90 / 100,
    ),
    "forerun_drift_alarm": (
        "Whether measured over answered has changed and is not back",
        lambda own: float(own.alarm),
    ),
}


def metrics_of(report: DriftOut) -> Iterator[Metric]:
    """The metrics of a report, of `MOST_SLICES` slices; labels are empty for all of a property."""
    slices = sorted(report.slices, key=lambda own: -own.rows)[:MOST_SLICES]
    if not slices:
        return
    for name, (described, value_of) in _VALUES.items():
        family = GaugeMetricFamily(name, described, labels=LABELS)
        for own in slices:
            value = value_of(own)
            if value is not None:
                family.add_metric([getattr(own, label) or "" for label in LABELS], value)
        yield family
