"""A request whose names are resolved, with the key under which its answer is cached."""

from collections.abc import Hashable
from dataclasses import dataclass, fields
from typing import Any

from forerun.data.metrics import METRICS
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network, operator_graph
from forerun.models.limit import Limit

RUN_METRICS = tuple(m.name for m in METRICS)
"""Metrics of an operator or a network."""
_BULKY = ("graph", "operator")


@dataclass(frozen=True, slots=True)
class Question:
    """A query, the requested metrics, and a cache key.

    Attributes:
        query: the workload, the device, and how both are run.
        metrics: names of the requested metrics.
        graph: digest of a network's graph; None for other workloads.
        key: equal for equal questions.
        notes: what was assumed where the request left something out.
        explain: whether the answer divides the estimate among operators or loops.
        usd_per_device_hour: price of a device of a deployment; None where none is given.
    """

    query: Query
    metrics: tuple[str, ...]
    graph: str | None
    key: Hashable
    notes: tuple[Limit, ...] = ()
    usd_per_device_hour: float | None = None
    explain: bool = False


def question_about(
    query: Query,
    metrics: tuple[str, ...] = RUN_METRICS,
    notes: tuple[Limit, ...] = (),
    *,
    explain: bool = False,
) -> Question:
    """The question for a query; equal content gives an equal key.

    The key holds every field of the query and its workload, with the graph replaced by its digest
    and what does not enter that.
    """
    given = query.workload
    if not isinstance(given, Kernel | Network):
        own = (query, metrics, notes, explain)
        return Question(query, metrics, None, own, notes, explain=explain)
    graph = operator_graph(given)
    digest = graph.digest
    key = (
        digest,
        graph.bound_dimensions,
        graph.assumptions,
        *(_plain(given, name) for name in _SMALL[type(given)]),
        *_rest(query),
        query.level,
        metrics,
        notes,
        explain,
    )
    named = digest if isinstance(given, Network) else None
    return Question(query, metrics, named, key, notes, explain=explain)


_SMALL: dict[type, tuple[str, ...]] = {
    kind: tuple(f.name for f in fields(kind) if f.name not in _BULKY) for kind in (Kernel, Network)
}
_REST = tuple(f.name for f in fields(Query) if f.name not in ("workload", "level"))


def _plain(workload: Kernel | Network, name: str) -> Hashable:
    value: Hashable = getattr(workload, name)
    return value


def _rest(query: Query) -> tuple[Any, ...]:
    return tuple(getattr(query, name) for name in _REST)
