"""Estimates divided among their parts: operators of a network, loops of a hardware design."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import log
from typing import Final

from forerun.data.columns import Column
from forerun.data.graph import OperatorGraph
from forerun.data.query import Query
from forerun.data.workload import Design, Network, OperatorWorkload
from forerun.features.graphs.pipeline import has_parts
from forerun.models.answers.wording import readable
from forerun.models.limit import LATENCY
from forerun.models.prediction import Estimate, OperatorTime, TimesOperators
from forerun.models.predictor import Predictor
from forerun.models.router import Router
from forerun.service.schemas.answers import REST, AttributedOut, AttributionOut, ClassSumOut

HOST: Final = "host"
"""Entry of a breakdown for the time that the device waits for the host."""
MOST_PARTS: Final = 30
"""Parts with an entry of their own."""


def by_operator(
    query: Query, breakdown_ms: Mapping[str, float], predictor: Predictor
) -> AttributionOut:
    """The latency of an operator or a network divided among its operators.

    The time of a class in the breakdown is divided among the operators of that class in proportion
    to their own times by the predictor of sums. So corrections of the whole network are
    distributed proportionally within each class, the values of a group add up to its entry of the
    breakdown, and those of all groups add up to the latency.
    """
    times = _operator_times(query, predictor)
    kernels = sum(time.ms for time in times)
    device_ms = sum(ms for name, ms in breakdown_ms.items() if name != HOST)
    parts = _divided(breakdown_ms, times)
    network = query.workload if isinstance(query.workload, Network) else None
    graph = None if network is None else network.graph
    return AttributionOut(
        metric=LATENCY,
        form="sum",
        base=0.0,
        parts=_largest(parts),
        by_class=_sums(parts, lambda part: part.group),
        by_part=_sums(parts, _part_in_words(graph)) if graph and has_parts(graph) else [],
        kernels=kernels if times else None,
        correction=device_ms / kernels if kernels > 0.0 else None,
        batch_size=None if network is None else network.batch_size,
        graph_batch_size=None if network is None else network.graph.batch_size,
    )


def _operator_times(query: Query, predictor: Predictor) -> Sequence[OperatorTime]:
    part = predictor.answering(query, LATENCY) if isinstance(predictor, Router) else predictor
    return part.operator_times(query) if isinstance(part, TimesOperators) else ()


def _divided(
    breakdown_ms: Mapping[str, float], times: Iterable[OperatorTime]
) -> list[AttributedOut]:
    """The breakdown divided among operators; a class without timed operators stays one part."""
    by_class: dict[str, list[OperatorTime]] = defaultdict(list)
    for time in times:
        if time.ms > 0.0:
            by_class[time.op_class].append(time)
    parts = []
    for name, ms in breakdown_ms.items():
        own = by_class.get(name, [])
        whole = sum(time.ms for time in own)
        parts += [
            AttributedOut(
                label=readable(time.label),
                group=name,
                count=time.count,
                value=ms * (time.ms / whole),
            )
            for time in own
        ] or [AttributedOut(label=name, group=name, count=1.0, value=ms)]
    return parts


def _part_in_words(graph: OperatorGraph) -> Callable[[AttributedOut], str]:
    """The part of a pipeline that a label begins with, and how often that runs; else the host."""
    runs: dict[str, int] = {}
    for op in graph.operators:
        runs[op.part] = min(op.repeat, runs.get(op.part, op.repeat))
    words = {name: f"{name}, {count} steps" if count > 2 else name for name, count in runs.items()}
    return lambda part: words.get(part.label.partition(":")[0], HOST)


def _sums(
    parts: Iterable[AttributedOut], group_of: Callable[[AttributedOut], str]
) -> list[ClassSumOut]:
    """The sum of each group over all parts, the largest first."""
    groups: dict[str, list[AttributedOut]] = defaultdict(list)
    for part in parts:
        groups[group_of(part)].append(part)
    sums = [
        ClassSumOut(
            group=name,
            parts=len(own),
            count=sum(part.count for part in own),
            value=sum(part.value for part in own),
        )
        for name, own in groups.items()
    ]
    return sorted(sums, key=lambda each: -each.value)


def _largest(parts: Sequence[AttributedOut]) -> list[AttributedOut]:
    """The largest parts, and the sum of all others as the last."""
    ordered = sorted(parts, key=lambda part: -part.value)
    kept, others = ordered[:MOST_PARTS], ordered[MOST_PARTS:]
    if len(others) < 2:
        return ordered
    rest = AttributedOut(
        label=f"{len(others)} smaller parts",
        group=REST,
        count=sum(part.count for part in others),
        value=sum(part.value for part in others),
    )
    return [*kept, rest]


CYCLES: Final = "latency_cycles"


def by_loop(query: Query, design: Design, predictor: Predictor) -> AttributionOut:
    """The cycles of a design divided among the directives of its loops."""
    # Questions about networks do not load the predictors of designs.
    from forerun.models.hls_designs.attribution import loop_effects

    def cycles_of(designs: Sequence[Design]) -> Column:
        queries = [replace(query, workload=own) for own in designs]
        if isinstance(predictor, Router):
            return predictor.predict_only({CYCLES}, queries).values[CYCLES]
        return predictor.predict(queries).values[CYCLES]

    effects = loop_effects(design, cycles_of)
    by_size = sorted(effects.factors.items(), key=lambda item: -abs(log(item[1])))
    return AttributionOut(
        metric=CYCLES,
        form="product",
        base=effects.base,
        parts=[
            AttributedOut(label=readable(name), group="loop", count=1.0, value=factor)
            for name, factor in by_size
        ],
        kernels=None,
        correction=None,
    )


def attribution_of(
    query: Query,
    breakdown_ms: Mapping[str, float],
    estimates: Mapping[str, Estimate],
    predictor: Predictor,
) -> AttributionOut | None:
    """An estimate divided among its parts; None where there are none.

    Args:
        query: the query as the predictors receive it.
        breakdown_ms: operator class, or `HOST` -> milliseconds, which add up to the latency.
        estimates: metric -> estimate that is returned.
        predictor: the predictor that answered.
    """
    if isinstance(query.workload, OperatorWorkload) and breakdown_ms:
        return by_operator(query, breakdown_ms, predictor)
    if isinstance(query.workload, Design) and "latency_cycles" in estimates:
        return by_loop(query, query.workload, predictor)
    return None
