"""Restores operands of matrix products that a graph does not show.

Tracing a product of more than three dimensions copies operands with other layouts, and the graph
shows copies and product as one chain, although the product reads both operands. A table traced at
batch size 1 lacks copies that larger batches need: heads inside rows can be viewed as a batch of
matrices only for a single sample.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from forerun.data.graph import Operator, OperatorGraph, Shape

_COPY = "aten.clone"
_TRACED = "aten.matmul"
_DECOMPOSED = frozenset({"aten.bmm", "aten.mm", "aten.addmm"})
_SAME_LAYOUT = frozenset({"elementwise", "softmax"})


def with_operand_edges(graph: OperatorGraph) -> OperatorGraph:
    """The graph with products that read both operands, and copies that read only their source."""
    operators = list(graph.operators)
    readers = _readers(operators)
    changed = False
    for place, op in enumerate(operators):
        if op.name != _TRACED or len(op.input_shapes) != 2 or len(op.inputs) != 1:
            continue
        last = op.inputs[0]
        if operators[last].name != _COPY or readers[last] != 1:
            continue
        first = _other_operand(operators, op, last)
        if first is None:
            continue
        copied = operators[first].name == _COPY and readers[first] == 1
        rest = tuple(i for i in operators[last].inputs if i != first)
        sources = operators[first].inputs if copied and not rest else rest
        operators[last] = replace(operators[last], inputs=sources or operators[last].inputs)
        operators[place] = replace(op, inputs=tuple(sorted({first, last})))
        changed = True
    return replace(graph, operators=tuple(operators)) if changed else graph


def _readers(operators: Sequence[Operator]) -> list[int]:
    counts = [0] * len(operators)
    for op in operators:
        for source in set(op.inputs):
            counts[source] += 1
    return counts


def _other_operand(operators: Sequence[Operator], op: Operator, last: int) -> int | None:
    """The operand that a product reads in addition to the copy before it, found by size."""
    sizes = [prod(shape) for shape in op.input_shapes]
    last_elements = _elements(operators[last])
    if last_elements not in sizes:
        return None
    sizes.remove(last_elements)
    fitting = [i for i in operators[last].inputs if _elements(operators[i]) == sizes[0]]
    return fitting[-1] if fitting else None


def _elements(op: Operator) -> int:
    return prod(op.output_shapes[0]) if op.output_shapes else 0


def copied_operands(graph: OperatorGraph) -> Mapping[int, tuple[Shape, ...]]:
    """Products of a table traced at batch size 1 -> operands that larger batches copy."""
    if graph.batch_size != 1:
        return {}
    ops, found = graph.operators, {}
    rows = _Rows(ops)
    for place, op in enumerate(ops):
        if not op.batched or op.name not in _DECOMPOSED:
            continue
        if op.kind == "linear":
            shapes = op.input_shapes if _is_across(ops, op) else ()
        else:
            pairs = zip(op.input_shapes, _sources(ops, op), strict=True)
            shapes = tuple(
                shape for shape, source in pairs if source is not None and rows.hold(source, shape)
            )
        if shapes:
            found[place] = shapes
    return found


def _is_across(operators: Sequence[Operator], op: Operator) -> bool:
    """Whether a linear layer's rows run across those of its operand (other last dimension)."""
    if len(op.inputs) != 1 or len(op.input_shapes) != 1 or len(op.input_shapes[0]) != 2:
        return False
    (rows, width), source = op.input_shapes[0], operators[op.inputs[0]]
    out = source.output_shapes[0] if source.output_shapes else ()
    if source.kind == "copy" or rows == 1 or not out or prod(out) != rows * width:
        return False
    return out[-1] != width and width in out[:-1]


def _sources(operators: Sequence[Operator], op: Operator) -> list[int | None]:
    """The operator that produces each operand: one of its size, or one that it is part of."""
    left = list(op.inputs)
    found: list[int | None] = [None] * len(op.input_shapes)
    for number, shape in enumerate(op.input_shapes):
        same = [i for i in left if _elements(operators[i]) == prod(shape)]
        if same:
            found[number] = same[-1]
            left.remove(same[-1])
    whole = left or list(op.inputs)
    for number, shape in enumerate(op.input_shapes):
        if found[number] is None:
            larger = [i for i in whole if _elements(operators[i]) >= prod(shape)]
            found[number] = larger[0] if larger else None
    return found


class _Rows:
    """Results whose matrices interleave in memory."""

    def __init__(self, operators: Sequence[Operator]) -> None:
        self._operators = operators
        # Position of a result and sizes of its last two dimensions -> whether they interleave.
        self._known: dict[tuple[int, Shape], bool] = {}

    def hold(self, source: int, shape: Shape) -> bool:
        """Whether matrices of a shape interleave in a result, so samples do not batch them."""
        if len(shape) != 3 or shape[0] == 1:
            return False
        walked: list[tuple[int, Shape]] = []
        at = (source, shape[-2:])
        while at not in self._known:
            walked.append(at)
            op = self._operators[at[0]]
            out = op.output_shapes[0] if op.output_shapes else ()
            if out[-2:] != at[1]:
                self._known[at] = op.batched and op.kind in ("linear", *_SAME_LAYOUT)
            elif op.kind not in _SAME_LAYOUT or len(op.inputs) != 1:
                self._known[at] = False
            else:
                at = (op.inputs[0], at[1])
        self._known.update(dict.fromkeys(walked, self._known[at]))
        return self._known[at]
