"""Finds the resource that slows a program by predicting it without contention for each one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from forerun.data.columns import Column
from forerun.data.query import Query
from forerun.data.workload import Colocation, HostWindow
from forerun.features.host_windows import (
    RESOURCES,
    Resource,
    level,
    levels,
    metrics_of,
    windows_of,
)
from forerun.models.colocation.booster import ColocationBoost

WAITED_FOR: tuple[Resource, ...] = ("cpu", "disk")
"""Resources that a program can wait for without using CPU time."""
METRICS_OF = {resource: frozenset(metrics_of(resource)) for resource in RESOURCES}
LEAST = 0.02
"""Gain in relative speed below which no resource is dominant."""


def gains(
    predictor: ColocationBoost, queries: Sequence[Query], now: Mapping[str, Column]
) -> list[Mapping[Resource, float]]:
    """Gain in relative speed if one resource were as it is when the program runs alone.

    The gain is in the relative speed of CPU time. For a CPU or a disk, which a program can wait
    for, the gain in wall time is added, up to the part of the wall-time slowdown that is not CPU
    time.

    Args:
        predictor: fitted predictor.
        queries: n queries about co-located programs.
        now: metric -> predicted relative speeds of the queries, shape (n,).

    Returns:
        n mappings resource -> gain, without resources that no given metric describes.
    """
    counterfactuals: list[Query] = []
    sources: list[tuple[int, Resource]] = []
    usual = _usual([query.colocation for query in queries], predictor.idle)
    for row, query in enumerate(queries):
        for resource in RESOURCES:
            relieved = _relieved(query.colocation, resource, usual[row])
            if relieved is not None:
                counterfactuals.append(replace(query, workload=relieved))
                sources.append((row, resource))
    gain_of: list[dict[Resource, float]] = [{} for _ in queries]
    if not counterfactuals:
        return list(gain_of)
    then = predictor.speeds(counterfactuals)
    metric = "p_cpu" if "p_cpu" in now else "p_wall"
    for index, (row, resource) in enumerate(sources):
        gain = float(then[metric][index] - now[metric][row])
        if resource in WAITED_FOR and "p_wall" in now:
            lacking = max(0.0, float(now[metric][row] - now["p_wall"][row]))
            waited = float(then["p_wall"][index] - now["p_wall"][row])
            gain += float(min(max(waited, 0.0), lacking))
        gain_of[row][resource] = gain
    return list(gain_of)


def dominant(gain: Mapping[Resource, float]) -> Resource | None:
    """The resource with the largest gain; None if no gain reaches LEAST."""
    best = max(gain, key=lambda resource: gain[resource], default=None)
    return best if best is not None and gain[best] >= LEAST else None


def _usual(runs: Sequence[Colocation], idle: HostWindow) -> list[dict[str, float]]:
    """Host metrics of each run while its program runs alone, else of an idle host."""
    alone = levels([run.profile.alone for run in runs])
    windows = windows_of(np.where(np.isnan(alone), level(idle), alone))
    return [dict(zip(w.metrics, w.seconds[0], strict=True)) if w.seconds else {} for w in windows]


def _relieved(
    colocation: Colocation, resource: Resource, usual: Mapping[str, float]
) -> Colocation | None:
    """The run with the metrics of one resource as usual; None if there are none."""
    window = colocation.window
    described = METRICS_OF[resource]
    changed = {n: usual[n] for n in window.metrics if n in described and n in usual}
    freed = resource == "cpu" and colocation.granted is not None
    if not freed and not (changed and window.seconds):
        return None
    seconds = tuple(
        tuple(changed.get(n, value) for n, value in zip(window.metrics, second, strict=True))
        for second in window.seconds
    )
    granted = 1.0 if freed else colocation.granted
    return replace(colocation, window=HostWindow(window.metrics, seconds), granted=granted)
