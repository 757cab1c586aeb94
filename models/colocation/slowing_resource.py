"""Which resource slows a program: the answer again with each resource as it is when alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from forerun.data.query import Query
from forerun.data.workload import Colocation, HostWindow
from forerun.features.host_windows import RESOURCES, Resource, level, metrics_of, window_of
from forerun.models.colocation.base import ColocationBase
from forerun.models.colocation.features import colocation_of

WAITED_FOR: tuple[Resource, ...] = ("cpu", "disk")
LEAST = 0.02
"""Gain in P below which no resource is said to dominate."""


def gains(predictor: ColocationBase, queries: Sequence[Query]) -> list[Mapping[Resource, float]]:
    """How much P would gain if one resource were as it is when the program runs alone.

    What slows CPU time is judged by the answer for CPU time. Waiting is what wall time lacks beyond
    that, and can only be for a CPU or a disk; relief of those counts up to it.

    Args:
        predictor: fitted.
        queries: n programs beside neighbours.

    Returns:
        n mappings resource -> relieved P less P; resources that no metric tells of are left out.
    """
    asked: list[Query] = []
    places: list[tuple[int, Resource]] = []
    for row, query in enumerate(queries):
        for resource in RESOURCES:
            relieved = _relieved(colocation_of(query), resource, predictor.idle)
            if relieved is not None:
                asked.append(replace(query, workload=relieved))
                places.append((row, resource))
    found: list[dict[Resource, float]] = [{} for _ in queries]
    if not asked:
        return list(found)
    now, then = predictor.predict(queries).values, predictor.predict(asked).values
    busy = now.get("p_cpu", now.get("p_wall"))
    relieved_busy = then.get("p_cpu", then.get("p_wall"))
    assert busy is not None
    assert relieved_busy is not None
    for place, (row, resource) in enumerate(places):
        gain = float(relieved_busy[place] - busy[row])
        if resource in WAITED_FOR and "p_wall" in now:
            lacking = max(0.0, float(busy[row] - now["p_wall"][row]))
            waited = float(then["p_wall"][place] - now["p_wall"][row])
            gain += float(min(max(waited, 0.0), lacking))
        found[row][resource] = gain
    return list(found)


def dominant(gain: Mapping[Resource, float]) -> Resource | None:
    """The resource whose relief would help most; None where none would help."""
    best = max(gain, key=lambda resource: gain[resource], default=None)
    return best if best is not None and gain[best] >= LEAST else None


def _relieved(asked: Colocation, resource: Resource, idle: HostWindow) -> Colocation | None:
    """The same with the metrics of one resource as they are alone; None where it has none."""
    window = asked.window
    alone, rest = window_of(level(asked.profile.alone)), window_of(level(idle))
    usual = {**_values(rest), **_values(alone)}
    changed = {n: usual[n] for n in window.metrics if n in metrics_of(resource) and n in usual}
    freed = resource == "cpu" and asked.granted is not None
    if not freed and not (changed and window.seconds):
        return None
    seconds = tuple(
        tuple(changed.get(n, value) for n, value in zip(window.metrics, second, strict=True))
        for second in window.seconds
    )
    granted = 1.0 if freed else asked.granted
    return replace(asked, window=HostWindow(window.metrics, seconds), granted=granted)


def _values(window: HostWindow) -> dict[str, float]:
    return dict(zip(window.metrics, window.seconds[0], strict=True)) if window.seconds else {}
