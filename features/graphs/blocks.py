"""Cut positions of a network, and its repeated blocks.

A cut is a position where only one tensor is passed on, as between the blocks of a network. Tensors
that depend on no weight (masks, tables of rotary embeddings) or that many parts read (position
biases, the output of an encoder) are passed to every part and do not prevent a cut.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from forerun.data.graph import Operator, OperatorGraph
from forerun.features.caches import GraphKey, kept_by_graph
from forerun.features.deadline import check

READ_BY_MANY = 4
"""Number of distant readers from which a tensor counts as read by many parts. A block's own input
has up to four readers close together (query, key, value, residual)."""
FEWEST_OPERATORS = 2
LONGEST_BLOCK = 64
"""Longest block searched for, in parts between cuts."""


class Part(NamedTuple):
    """Consecutive operators.

    Attributes:
        span: their positions.
        block: whether they are one of several equal parts.
    """

    span: range
    block: bool


def spans(graph: OperatorGraph, segments: int) -> Sequence[range]:
    """The graph in at most `segments` parts with similar numbers of operators, split at cuts."""
    n = len(graph)
    places = cuts(graph) if segments > 1 else ()
    wanted = [round(n * part / segments) for part in range(1, segments)] if places else []
    chosen = sorted({_nearest(places, goal) for goal in wanted})
    return [range(first, end) for first, end in pairwise([0, *chosen, n])]


def cuts(graph: OperatorGraph) -> tuple[int, ...]:
    """Positions p such that one tensor is passed from the operators before p to the others."""
    return _cuts(GraphKey(graph))


def parts(graph: OperatorGraph) -> tuple[Part, ...]:
    """The whole graph in order: its repeated blocks and the spans between them."""
    return _parts(GraphKey(graph))


def stretch(graph: OperatorGraph) -> tuple[int, int]:
    """Position of the first block, and the end of the last; the whole graph without blocks."""
    blocks = [part.span for part in parts(graph) if part.block]
    return (blocks[0].start, blocks[-1].stop) if blocks else (0, len(graph))


def _nearest(places: Sequence[int], goal: int) -> int:
    """The place closest to a goal, the earlier of two; places are sorted."""
    after = bisect_left(places, goal)
    return min(places[max(0, after - 1) : after + 1], key=lambda place: abs(place - goal))


@kept_by_graph()
def _cuts(key: GraphKey) -> tuple[int, ...]:
    graph = key.graph
    n, readers = len(graph), _readers(graph)
    crossing = [0] * (n + 1)
    handed_on = _carries_data(graph)
    for place in range(n):
        last = readers[place][-1] if readers[place] else n - 1
        if handed_on[place] and not _read_by_many(readers[place]):
            crossing[place + 1] += 1
            crossing[min(last + 1, n)] -= 1
    narrow, alive = [], 0
    for place in range(1, n):
        alive += crossing[place]
        if alive == 1:
            narrow.append(place)
    return tuple(narrow)


def _carries_data(graph: OperatorGraph) -> list[bool]:
    """Whether weights, or an input of the network, enter a result that grows with the batch."""
    known: list[bool] = []
    for op in graph.operators:
        enters = op.parameter_elements > 0 or (not op.inputs and bool(op.input_shapes))
        known.append(op.batched and (enters or any(known[i] for i in op.inputs)))
    if not any(known):
        return [op.batched for op in graph.operators]
    return known


def _read_by_many(readers: Sequence[int]) -> bool:
    """Whether a tensor's readers are far apart rather than within one block."""
    if len(readers) <= READ_BY_MANY:
        return False
    gaps = [after - before for before, after in pairwise(readers)]
    return sum(gap > 2 for gap in gaps) >= READ_BY_MANY


def _readers(graph: OperatorGraph) -> list[list[int]]:
    readers: list[list[int]] = [[] for _ in graph.operators]
    for place, op in enumerate(graph.operators):
        for source in dict.fromkeys(op.inputs):
            readers[source].append(place)
    return readers


@kept_by_graph()
def _parts(key: GraphKey) -> tuple[Part, ...]:
    graph = key.graph
    n, places = len(graph), (*cuts(graph), len(graph))
    between = frozenset((0, *places))
    looks, weighed = _looks(graph.operators), _weighed(graph.operators)
    found: list[Part] = []
    start = at = 0
    while at < n:
        check()
        length, times = _repeated(looks, weighed, places, at) if at in between else (0, 0)
        if not times:
            after = bisect_left(places, at + 1)
            at = places[after] if after < len(places) else n
            continue
        if start < at:
            found.append(Part(range(start, at), False))
        found += [Part(range(b, b + length), True) for b in range(at, at + times * length, length)]
        start = at = at + times * length
    if start < n:
        found.append(Part(range(start, n), False))
    return tuple(found)


def _looks(operators: Sequence[Operator]) -> list[int]:
    """A code for each operator, equal for operators with equal fields."""
    known: dict[object, int] = {}
    return [
        known.setdefault(
            (op.kind, op.name, op.input_shapes, op.output_shapes, op.parameter_elements),
            len(known),
        )
        for op in operators
    ]


def _weighed(operators: Sequence[Operator]) -> list[int]:
    """(n + 1,) number of operators with weights before each position."""
    return [0, *accumulate(int(op.parameter_elements > 0) for op in operators)]


def _repeated(
    looks: Sequence[int], weighed: Sequence[int], places: Sequence[int], at: int
) -> tuple[int, int]:
    """Length of the shortest part that starts here and repeats, and its count; else zeros."""
    first = bisect_left(places, at + FEWEST_OPERATORS)
    for end in places[first : first + LONGEST_BLOCK]:
        length = end - at
        if weighed[end] == weighed[at] or looks[end : end + 1] != looks[at : at + 1]:
            continue
        block = looks[at:end]
        if looks[end : end + length] != block:
            continue
        times = 2
        while looks[at + times * length : at + (times + 1) * length] == block:
            times += 1
        return length, times
    return 0, 0
