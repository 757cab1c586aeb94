"""Windows of host metrics: the metrics that may be features, with reasons, and their statistics.

A program's work is fixed, so a count that is equal in all its runs, divided by time, gives away the
run time, which is the label. The metrics that may be features are listed here, each with its
reason; all others, and the number of seconds, are ignored.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from forerun.data.workload import HostWindow

Matrix = NDArray[np.float64]
Resource = Literal["cpu", "cache", "memory_bandwidth", "disk", "network"]
RESOURCES: Final[tuple[Resource, ...]] = ("cpu", "cache", "memory_bandwidth", "disk", "network")

TIME_SHARE: Final = "share of time in a state; what is shared is the clock's, not the run's"
QUEUE: Final = "length of a queue at a moment"
PROBED: Final = "timed by a probe of its own on its own clock"


@dataclass(frozen=True, slots=True)
class HostMetric:
    """One metric that may be a feature.

    Attributes:
        resource: the resource that it describes.
        reason: why it does not encode a run's time.
        scale: `log` where ratios matter.
        most: upper bound for any number of programs; None where there is none.
        falls: whether it falls, rather than rises, as programs are added.
    """

    resource: Resource
    reason: str = TIME_SHARE
    scale: Literal["plain", "log"] = "plain"
    most: float | None = None
    falls: bool = False


def _cpu_shares(cpus: str) -> dict[str, HostMetric]:
    kinds = ("user", "nice", "system", "steal", "idle")
    return {f"{cpus}.{kind}_share": HostMetric("cpu", falls=kind == "idle") for kind in kinds}


HOST_METRICS: Final[Mapping[str, HostMetric]] = {
    **_cpu_shares("cpu"),
    **_cpu_shares("own_cpu"),
    **_cpu_shares("other_cpus"),
    "pressure.cpu.some_share": HostMetric("cpu", most=1.0),
    "task.cpu_share": HostMetric("cpu", most=1.0),
    "task.wait_share": HostMetric("cpu", most=1.0),
    "sched.wait_share": HostMetric("cpu"),
    "stat.procs_running": HostMetric("cpu", QUEUE),
    "load.running": HostMetric("cpu", QUEUE),
    "probe.late_ms": HostMetric("cpu", PROBED, "log", most=1e3),
    "probe.latency_ns": HostMetric("cache", PROBED, "log", most=1e3),
    "probe.latency_cycles": HostMetric("cache", PROBED, "log", most=5e3),
    "probe.near_ns": HostMetric("cache", PROBED, "log", most=1e3),
    "probe.evicted": HostMetric("cache", PROBED, most=1.0),
    "probe.read_gbs": HostMetric("memory_bandwidth", PROBED, "log", falls=True),
    "pressure.memory.some_share": HostMetric("memory_bandwidth", most=1.0),
    "cpu.iowait_share": HostMetric("disk"),
    "pressure.io.some_share": HostMetric("disk", most=1.0),
    "pressure.io.full_share": HostMetric("disk", most=1.0),
    "disk.io_share": HostMetric("disk", most=1.0),
    "disk.weighted_share": HostMetric("disk"),
    "disk.in_flight": HostMetric("disk", QUEUE),
    "stat.procs_blocked": HostMetric("disk", QUEUE),
    "cpu.softirq_share": HostMetric("network"),
}
"""Name -> metric. `own_cpu` is the one that the program runs on, `other_cpus` the sum of the rest.
Averages that the kernel keeps over 10 s are not among them: they reach back before a run."""

PINNED: Final = ("own_cpu.", "other_cpus.")
"""Prefixes of metrics that exist only for a program pinned to one CPU."""
NAMES: Final = tuple(HOST_METRICS)
STATISTICS: Final = ("median", "spread", "max", "trend")
_LOG: Final = np.array([m.scale == "log" for m in HOST_METRICS.values()])
_LEAST: Final = 1e-3
_PLACE: Final = {name: place for place, name in enumerate(NAMES)}


def metrics_of(resource: Resource) -> tuple[str, ...]:
    """Names of the metrics of a resource."""
    return tuple(name for name, metric in HOST_METRICS.items() if metric.resource == resource)


def window_values(window: HostWindow) -> Matrix:
    """Values in the order of `NAMES`, logarithms where ratios matter.

    Returns:
        t x len(NAMES); NaN where a metric is missing.
    """
    found = np.full((len(window.seconds), len(NAMES)), np.nan)
    given = np.array(window.seconds, dtype=np.float64)
    given = given.reshape(len(window.seconds), len(window.metrics))
    for column, name in enumerate(window.metrics):
        if name in _PLACE:
            found[:, _PLACE[name]] = given[:, column]
    found[~np.isfinite(found)] = np.nan
    found[:, _LOG] = np.log(np.maximum(found[:, _LOG], _LEAST))
    return found


def unread_metrics(names: Iterable[str]) -> tuple[str, ...]:
    """Names that no feature is made of, each once, sorted."""
    return tuple(sorted(set(names) - _PLACE.keys()))


def missing_metrics(window: HostWindow, wanted: Sequence[str]) -> tuple[str, ...]:
    """Wanted metrics that no second of a window has."""
    known = np.isfinite(window_values(window)).sum(axis=0) > 0
    return tuple(name for name in wanted if not known[_PLACE[name]])


def statistics(values: Matrix) -> Matrix:
    """Median, spread (90th less 10th percentile), maximum and trend (per second) over time.

    Args:
        values: n x t x f, windows of one length, as `window_values` gives them.

    Returns:
        n x len(STATISTICS) x f; NaN where a metric is missing, no trend in fewer than 3 seconds.
    """
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
    values = window_values(window)
    if not len(values):
        return np.full(len(NAMES), np.nan)
    found: Matrix = statistics(values[None])[0, 0]
    return found


def natural(values: Matrix) -> Matrix:
    """Invert the logarithms of `window_values` or `level`, shape n x len(NAMES)."""
    with np.errstate(over="ignore"):
        found: Matrix = np.where(_LOG, np.exp(np.where(_LOG, values, 0.0)), values)
    return found


def window_of(values: Matrix) -> HostWindow:
    """A window of one second with values of `level`, clipped to 0 and to upper bounds."""
    found = np.maximum(natural(values), 0.0)
    most = [np.inf if metric.most is None else metric.most for metric in HOST_METRICS.values()]
    found = np.minimum(found, most)
    known = np.flatnonzero(~np.isnan(found))
    names = tuple(NAMES[place] for place in known)
    return HostWindow(names, (tuple(found[known].tolist()),) if names else ())


def _quantile(ordered: Matrix, count: NDArray[np.intp], share: float) -> Matrix:
    """Linear between ranks, of the first `count` of n x t x f ordered values; shape n x f."""
    place = share * np.maximum(count - 1, 0)
    below = np.floor(place).astype(np.intp)
    above = np.minimum(below + 1, np.maximum(count - 1, 0))
    one, other = (np.take_along_axis(ordered, p[:, None], axis=1)[:, 0] for p in (below, above))
    found: Matrix = one + (place - below) * (other - one)
    return np.where(count > 0, found, np.nan)
