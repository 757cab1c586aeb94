"""Which resource slows a program: the answer again with each resource as it is when alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from forerun.data.query import Query
from forerun.data.workload import Colocation, HostWindow
from forerun.features.windows import RESOURCES, Resource, level, metrics_of, window_of
from forerun.models.colocation_rows import colocation_of
from forerun.models.colocator import Colocator

LEAST = 0.02
"""Gain in P below which no resource is said to dominate."""


def gains(
    predictor: Colocator, queries: Sequence[Query], metric: str = "p_cpu"
) -> list[Mapping[Resource, float]]:
    """How much P would gain if one resource were as it is when the program runs alone.

    Args:
        predictor: fitted.
        queries: n programs beside neighbours.
        metric: of the two.

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
    now = predictor.predict(queries).values[metric]
    then = predictor.predict(asked).values[metric]
    for (row, resource), value in zip(places, then, strict=True):
        found[row][resource] = float(value - now[row])
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
    if not changed or not window.seconds:
        return None
    seconds = tuple(
        tuple(changed.get(n, value) for n, value in zip(window.metrics, second, strict=True))
        for second in window.seconds
    )
    return replace(asked, window=HostWindow(window.metrics, seconds))


def _values(window: HostWindow) -> dict[str, float]:
    return dict(zip(window.metrics, window.seconds[0], strict=True)) if window.seconds else {}
