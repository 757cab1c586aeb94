"""Windows of host metrics: which metrics may be features and why, and their statistics.

A program's work is fixed, so a count that is equal in all its runs, divided by time, reveals the
run time, which is the label. Metrics that may be features are listed with a
reason in `host_windows.toml`; all others, and the number of seconds, are ignored.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from forerun.data.columns import Matrix, groups_of
from forerun.data.facts import facts_of
from forerun.data.workload import HostWindow

Resource = Literal["cpu", "cache", "memory_bandwidth", "disk", "network"]
RESOURCES: Final[tuple[Resource, ...]] = ("cpu", "cache", "memory_bandwidth", "disk", "network")


@dataclass(frozen=True, slots=True)
class HostMetric:
    """A metric that may be a feature.

    Attributes:
        resource: the resource that it describes.
        reason: why it does not encode a run's time.
        scale: `log` where ratios matter.
        most: upper bound for any number of programs; None if unbounded.
        falls: whether it falls, rather than rises, as programs are added.
    """

    resource: Resource
    reason: str = "share of time in a state; what is shared is the clock's, not the run's"
    scale: Literal["plain", "log"] = "plain"
    most: float | None = None
    falls: bool = False


HOST_METRICS: Final[Mapping[str, HostMetric]] = {
    name: HostMetric(**fields) for name, fields in facts_of(__file__).items()
}
"""Name -> metric."""

PINNED: Final = ("own_cpu.", "other_cpus.")
"""Prefixes of metrics that exist only for a program pinned to one CPU."""
NAMES: Final = tuple(HOST_METRICS)
STATISTICS: Final = ("median", "spread", "max", "trend")
_LOG: Final = np.array([m.scale == "log" for m in HOST_METRICS.values()])
_LEAST: Final = 1e-3
_MOST: Final = np.array([np.inf if m.most is None else m.most for m in HOST_METRICS.values()])
_NO_SECONDS: Final = np.empty((0, len(NAMES)))
_PLACE: Final = {name: place for place, name in enumerate(NAMES)}


def metrics_of(resource: Resource) -> tuple[str, ...]:
    """Names of the metrics of a resource."""
    return tuple(name for name, metric in HOST_METRICS.items() if metric.resource == resource)


def window_values(window: HostWindow) -> Matrix:
    """Values in the order of `NAMES`, logarithms where ratios matter.

    Returns:
        t x len(NAMES); NaN where a metric is missing.
    """
    return values_of([window])[0]


def values_of(windows: Sequence[HostWindow]) -> list[Matrix]:
    """`window_values` of n windows; similar windows are computed together."""
    found = [_NO_SECONDS] * len(windows)
    alike = groups_of((window.metrics, len(window.seconds)) for window in windows)
    for (metrics, seconds), rows in alike.items():
        given = np.array([windows[row].seconds for row in rows], dtype=np.float64)
        given = given.reshape(len(rows), seconds, len(metrics))
        for row, values in zip(rows, _in_order(given, metrics), strict=True):
            found[row] = values
    return found


def unread_metrics(names: Iterable[str]) -> tuple[str, ...]:
    """Names that no feature uses, without duplicates, sorted."""
    return tuple(sorted(set(names) - _PLACE.keys()))


def missing_metrics(median: Matrix, wanted: Sequence[str]) -> tuple[str, ...]:
    """Wanted metrics that are NaN in a window's `level`."""
    known = ~np.isnan(median)
    return tuple(name for name in wanted if not known[_PLACE[name]])


def statistics(values: Matrix) -> Matrix:
    """Median, spread (90th less 10th percentile), maximum and trend (per second) over time.

    Args:
        values: n x t x f, windows of one length, as returned by `window_values`.

    Returns:
        n x len(STATISTICS) x f; NaN where a metric is missing, no trend below 3 seconds.
    """
    if values.shape[1] == 1:
        only = values[:, 0]
        return np.stack([only, only - only, only, np.full_like(only, np.nan)], axis=1)
    ordered = np.sort(values, axis=1)  # Missing values are sorted last.
    known = ~np.isnan(values)
    count = known.sum(axis=1)
    low, middle, high, most = (_quantile(ordered, count, q) for q in (0.1, 0.5, 0.9, 1.0))
    time = np.arange(values.shape[1], dtype=np.float64)[None, :, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        middle_time = (known * time).sum(axis=1) / count
        centred = np.where(known, time - middle_time[:, None], 0.0)
        slope = (centred * np.nan_to_num(values)).sum(axis=1) / (centred**2).sum(axis=1)
    trend = np.where(count > 2, slope, np.nan)
    return np.stack([middle, high - low, most, trend], axis=1)


def level(window: HostWindow) -> Matrix:
    """Median over time of each metric, shape (len(NAMES),); NaN where it is missing."""
    found: Matrix = levels([window])[0]
    return found


def levels(windows: Sequence[HostWindow]) -> Matrix:
    """Median over time of each metric, n x len(NAMES); NaN where a window lacks it."""
    return statistics_of(values_of(windows))[:, 0]


def statistics_of(values: Sequence[Matrix]) -> Matrix:
    """`statistics` of n windows of any lengths, n x len(STATISTICS) x len(NAMES).

    Args:
        values: of each window, as returned by `values_of`; all NaN for a window without seconds.
    """
    found = np.full((len(values), len(STATISTICS), len(NAMES)), np.nan)
    for length, rows in groups_of(map(len, values)).items():
        if length:
            found[rows] = statistics(np.stack([values[row] for row in rows]))
    return found


def natural(values: Matrix) -> Matrix:
    """Invert the logarithms of `window_values` or `level`, shape n x len(NAMES)."""
    with np.errstate(over="ignore"):
        found: Matrix = np.where(_LOG, np.exp(np.where(_LOG, values, 0.0)), values)
    return found


def window_of(values: Matrix) -> HostWindow:
    """A one-second window with values of `level`, clipped to 0 and to upper bounds."""
    return windows_of(values[None])[0]


def windows_of(values: Matrix) -> list[HostWindow]:
    """`window_of` each of n rows of values, n x len(NAMES)."""
    found = np.minimum(np.maximum(natural(values), 0.0), _MOST)
    windows = [HostWindow()] * len(found)
    for places, rows in groups_of(map(tuple, _known_places(found))).items():
        if places:
            names = tuple(NAMES[place] for place in places)
            for row, given in zip(rows, found[np.ix_(rows, places)].tolist(), strict=True):
                windows[row] = HostWindow(names, (tuple(given),))
    return windows


def _known_places(values: Matrix) -> list[list[int]]:
    """Positions of the values in each row that are not NaN."""
    return [np.flatnonzero(known).tolist() for known in ~np.isnan(values)]


def _in_order(given: Matrix, metrics: Sequence[str]) -> Matrix:
    """Windows of the same metrics in the order of `NAMES`, n x t x len(metrics) to len(NAMES)."""
    found = np.full((*given.shape[:2], len(NAMES)), np.nan)
    columns = [column for column, name in enumerate(metrics) if name in _PLACE]
    found[:, :, [_PLACE[metrics[column]] for column in columns]] = given[:, :, columns]
    found[~np.isfinite(found)] = np.nan
    found[:, :, _LOG] = np.log(np.maximum(found[:, :, _LOG], _LEAST))
    return found


def _quantile(ordered: Matrix, count: NDArray[np.intp], share: float) -> Matrix:
    """Quantile of the first `count` of n x t x f ordered values, linear in rank; shape n x f."""
    place = share * np.maximum(count - 1, 0)
    below = np.floor(place).astype(np.intp)
    above = np.minimum(below + 1, np.maximum(count - 1, 0))
    one, other = (np.take_along_axis(ordered, p[:, None], axis=1)[:, 0] for p in (below, above))
    found: Matrix = one + (place - below) * (other - one)
    return np.where(count > 0, found, np.nan)
