"""Operator graphs from the `graphs` table of the timm_bench bundle.

One row is one ATen operator at batch 1: shapes as JSON text of at most four inputs, including
weights; views are already folded.
"""

import json
from dataclasses import replace
from functools import lru_cache
from itertools import combinations
from math import prod
from typing import NamedTuple

from forerun.data.graph import Attribute, Operator, OperatorGraph, Shape
from forerun.data.lazy import pd
from forerun.features.operators.fusion import fuse_attention
from forerun.features.readers.aten_graph import FACTORIES, KIND_OF, VIEWS, function_of

COLUMNS = (
    *("model", "img_size", "idx", "op", "in_shapes", "out_shape", "preds"),
    *("in_elems", "out_elems", "param_elems", "attr"),
)
_ATTRIBUTES = {"k": "kernel", "s": "stride", "p": "padding", "g": "groups", "d": "dilation"}
_TABLE_SHOWS = 4
"""Maximum number of input shapes in a row; `in_elems` counts all inputs."""


class _Row(NamedTuple):
    """A row's content without its predecessors."""

    op: str
    in_shapes: str
    out_shape: str
    in_elems: int
    out_elems: int
    param_elems: int
    attr: str
    operands: int


def timm_graphs(frame: "pd.DataFrame") -> dict[tuple[str, int], OperatorGraph]:
    """Graphs of a `graphs` table.

    Tracing artefacts (`empty`, `detach`) and constants created on the fly (`arange`, `zeros`,
    `eye`) are dropped, views are folded, and the decomposed scaled-dot-product attention of the
    table becomes one `attention` operator, since it runs as one kernel.

    Args:
        frame: columns as in `COLUMNS`; rows of one graph are contiguous, in order of `idx`.

    Returns:
        (model, img_size) -> graph at batch 1. `parameter_elements` is the sum over operators.

    Raises:
        KeyError: a column is missing.
    """
    columns = [frame[name].tolist() for name in COLUMNS]
    graphs: dict[tuple[str, int], OperatorGraph] = {}
    key: tuple[str, int] | None = None
    builder = _Builder(0)
    for model, size, idx, op, shapes, out, preds, n_in, n_out, weights, attr in zip(
        *columns, strict=True
    ):
        if key != (model, size):
            if key is not None:
                graphs[key] = builder.graph()
            key, builder = (model, size), _Builder(size)
        sources = _numbers(preds)
        row = _Row(op, shapes, out, n_in, n_out, weights, attr, len(sources))
        builder.add(idx, row, sources)
    if key is not None:
        graphs[key] = builder.graph()
    return graphs


class _Builder:
    """Collects the operators of one graph; positions of folded rows resolve to their producers."""

    def __init__(self, img_size: int) -> None:
        self._image = 3 * img_size * img_size
        self._operators: list[Operator] = []
        self._where: dict[int, tuple[int, ...]] = {}

    def add(self, idx: int, row: _Row, preds: tuple[int, ...]) -> None:
        inputs = tuple(dict.fromkeys(p for i in preds for p in self._where.get(i, ())))
        if row.op in FACTORIES or row.op in VIEWS:
            self._where[idx] = inputs
            return
        made = _template(row)
        # The image is an input without a producer, read directly or through a folded view.
        reads_image = any(prod(s) == self._image for s in made.input_shapes)
        batched = reads_image or any(self._operators[i].batched for i in inputs)
        self._where[idx] = (len(self._operators),)
        self._operators.append(replace(made, inputs=inputs, batched=batched))

    def graph(self) -> OperatorGraph:
        total = sum(op.parameter_elements for op in self._operators)
        graph = OperatorGraph(tuple(self._operators), parameter_elements=total)
        return fuse_attention(graph, softmax_names=("aten._safe_softmax",))


@lru_cache(maxsize=1 << 16)
def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


@lru_cache(maxsize=1 << 16)
def _template(row: _Row) -> Operator:
    """The operator of a row without its edges, cached because rows repeat."""
    shapes: list[Shape] = [tuple(s) for s in json.loads(row.in_shapes)]
    output: Shape = tuple(json.loads(row.out_shape))
    kind = KIND_OF.get(row.op, "unknown")
    attributes: dict[str, Attribute] = {
        _ATTRIBUTES[k]: tuple(v) if isinstance(v, list) else v
        for k, v in (json.loads(row.attr) if row.attr else {}).items()
        if k in _ATTRIBUTES
    }
    rest = row.in_elems - sum(map(prod, shapes))
    if len(shapes) >= _TABLE_SHOWS and rest > 0 and kind == "copy":
        shapes.append((rest,))
    inputs, weights = _parted(kind, row, shapes)
    if row.op == "mm" and len(inputs) == 1:
        kind = "linear"
    if kind == "elementwise":
        attributes["function"] = function_of(row.op)
    if kind == "reduce":
        attributes["width"] = max(1, prod(inputs[0]) // max(1, prod(output)))
    if kind in ("layer_norm", "group_norm"):
        # The row counts mean and reciprocal deviation of every normalised group as outputs.
        groups = max(1, (row.out_elems - prod(output)) // 2)
        attributes["width"] = max(1, prod(output) // groups)
    return Operator(kind, f"aten.{row.op}", inputs, (output,), weights, attributes)


def _parted(kind: str, row: _Row, shapes: list[Shape]) -> tuple[tuple[Shape, ...], int]:
    """Activation shapes and number of weight elements of one row."""
    if kind == "conv":
        return (shapes[0],), sum(map(prod, shapes[1:]))
    if row.op == "addmm":
        return (shapes[1],), prod(shapes[0]) + prod(shapes[2])
    if row.op == "mm" and row.operands == 1:
        # The other operand is a transposed view of a weight, which `param_elems` omits.
        return (shapes[0],), prod(shapes[1])
    if kind == "batch_norm":
        # A row lists each distinct vector once, but scale, shift, mean and variance are all read.
        channels = shapes[0][1] if len(shapes[0]) > 1 else 1
        return (shapes[0],), 4 * channels if len(shapes) > 1 else 0
    if kind in ("layer_norm", "group_norm"):
        return (shapes[0],), sum(map(prod, shapes[1:]))
    if row.op == "copy":
        return (shapes[-1],), 0
    weights = _weights_among(tuple(shapes), row.param_elems)
    kept = tuple(s for i, s in enumerate(shapes) if i not in weights)
    return kept, sum(prod(shapes[i]) for i in weights)


def _weights_among(shapes: tuple[Shape, ...], elements: int) -> tuple[int, ...]:
    """Positions of the inputs that make up `elements` weight elements, searched from the end."""
    if not elements:
        return ()
    positions = range(len(shapes) - 1, -1, -1)
    for size in range(1, len(shapes) + 1):
        for chosen in combinations(positions, size):
            if sum(prod(shapes[i]) for i in chosen) == elements:
                return chosen
    return ()
