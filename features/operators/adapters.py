"""Which linear layers get adapters of LoRA (Hu et al. 2021, arXiv 2106.09685), and what then has a
backward pass.
"""

from collections.abc import Sequence
from dataclasses import replace

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.workload import LoraTargets
from forerun.features.caches import GraphKey, kept_by_graph

HEAD_FACTOR = 2
"""A final linear layer whose output is wider than its input by more than this gives logits over a
vocabulary. Projections within blocks are up to 4 times as wide but never final; final layers of
language models are 5 (BERT) to 60 times as wide as the network, those of classifiers narrower."""


def head_of(graph: OperatorGraph) -> int | None:
    """Position of the layer that gives per-token logits over a vocabulary; None without one."""
    if not graph.operators:
        return None
    last = len(graph) - 1
    op = graph.operators[last]
    if op.kind != "linear" or not op.output_shapes or not op.input_shapes:
        return None
    out, into = op.output_shapes[0], op.input_shapes[0]
    wide = (
        len(out) == 3
        and out[-1] > HEAD_FACTOR * into[-1]
        and any(operator.kind == "embedding" for operator in graph.operators)
    )
    return last if wide else None


def adapted_layers(graph: OperatorGraph, targets: LoraTargets) -> frozenset[int]:
    """Positions of linear layers that get adapters."""
    return _targets(GraphKey(graph), targets)


def behind_adapters(graph: OperatorGraph, targets: LoraTargets) -> OperatorGraph:
    """The operators that have a backward pass with LoRA: those that read results of adapters, where
    autograd stops. All of them in a list that does not say what they read.
    """
    is_list = not any(op.inputs for op in graph.operators)
    return graph if is_list else _behind(GraphKey(graph), targets)


@kept_by_graph()
def _targets(key: GraphKey, wanted: LoraTargets) -> frozenset[int]:
    operators, head = key.graph.operators, head_of(key.graph)
    linear = {i for i, op in enumerate(operators) if op.kind == "linear" and i != head}
    if wanted == "all_linear":
        return frozenset(linear)
    attends = [place for place, op in enumerate(operators) if op.kind == "attention"]
    if wanted == "query_value":
        # Query, key and value in execution order; a fused layer holds all of them.
        ends = _ends_before(operators, linear)
        return frozenset(end for place in attends for end in ends[place] or ())
    start = {source for place in attends for source in operators[place].inputs}
    after = _first_after(operators, linear)
    before = _nearest(operators, start, linear)
    return frozenset(before.union(after[place] for place in attends if place in after))


@kept_by_graph()
def _behind(key: GraphKey, wanted: LoraTargets) -> OperatorGraph:
    adapted, kept, known = _targets(key, wanted), list[Operator](), set[int]()
    places: dict[int, int] = {}
    for place, op in enumerate(key.graph.operators):
        if not known.isdisjoint(op.inputs):
            places[place] = len(kept)
            inputs = tuple(places[i] for i in op.inputs if i in places)
            kept.append(replace(op, inputs=inputs))
        if place in places or place in adapted:
            known.add(place)
    return replace(key.graph, operators=tuple(kept))


def _nearest(operators: Sequence[Operator], start: set[int], linear: set[int]) -> set[int]:
    """Linear layers met first when walking up from some operators."""
    positions: set[int] = set()
    todo, known = list(start), set(start)
    while todo:
        place = todo.pop()
        if place in linear:
            positions.add(place)
            continue
        for source in operators[place].inputs:
            if source not in known:
                known.add(source)
                todo.append(source)
    return positions


def _ends_before(operators: Sequence[Operator], linear: set[int]) -> list[tuple[int, int] | None]:
    """The first and the last of the linear layers met first when walking up from each operator."""
    found: list[tuple[int, int] | None] = []
    for op in operators:
        before = [(i, i) if i in linear else found[i] for i in op.inputs]
        known = [ends for ends in before if ends is not None]
        found.append((min(a for a, _ in known), max(b for _, b in known)) if known else None)
    return found


def _first_after(operators: Sequence[Operator], linear: set[int]) -> dict[int, int]:
    """The linear layer that reads each result, directly or through copies and the like."""
    found: dict[int, int] = {}
    for place in range(len(operators) - 1, -1, -1):
        first = place if place in linear else found.get(place)
        if first is None:
            continue
        for source in operators[place].inputs:
            found[source] = min(first, found.get(source, first))
    return found
