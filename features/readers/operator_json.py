"""Operator graphs from the JSON of `OperatorGraph.to_json`, validated before use."""

import json
from collections.abc import Callable, Mapping
from math import isfinite, prod
from pathlib import Path
from typing import Any

from forerun.data.errors import ModelTooLarge, UnreadableModel, in_field, why_unreadable
from forerun.data.graph import BINDING_REASONS, FORMAT, Operator, OperatorGraph, Shape
from forerun.features.deadline import check_operators, watched
from forerun.features.operators.costs import operator_cost
from forerun.features.operators.kinds import KIND_CODE, KINDS
from forerun.features.readers.input_sizes import InputSizes

MAX_OPERATORS = 100_000
MAX_RANK = 16
MAX_OPERANDS = 4096
MOST_ATTRIBUTES = 64
MAX_NUMBER = 2**53
"""Largest count a float64 holds exactly."""


class OperatorJsonReader:
    """Reads `graph.json` files."""

    def accepts(self, path: Path | None, head: bytes) -> bool:
        """Whether it is the JSON of an operator graph."""
        return head.lstrip()[:1] == b"{" and FORMAT.split("/")[0].encode() in head

    def read(self, source: Path | bytes, sizes: InputSizes) -> OperatorGraph:
        """The graph as it was written; its shapes are fixed, so it keeps its batch size.

        Raises:
            BadShape: shapes or an image size are given.
            UnreadableModel, ModelTooLarge: it is not such JSON, or one of its fields is invalid.
        """
        where = source.name if isinstance(source, Path) else "the operator graph"
        sizes.refuse_shapes(where, "the shapes of an operator graph are fixed; make a new one")
        content = source.read_bytes() if isinstance(source, Path) else source
        return graph_of(parse_json(content, where), where)


def parse_json(content: bytes, where: str) -> Mapping[str, Any]:
    """A JSON object.

    Raises:
        UnreadableModel: it is not a JSON object, is truncated, or nests too deeply.
    """
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UnreadableModel(where, f"not valid JSON: {why_unreadable(error)}.") from error
    if not isinstance(parsed, dict):
        raise UnreadableModel(where, "it is JSON, but not an object.")
    return parsed


def graph_of(content: Mapping[str, Any], where: str = "the operator graph") -> OperatorGraph:
    """The graph of parsed JSON with every field validated, so that computing costs never fails.

    Args:
        content: what `OperatorGraph.to_json` returns.
        where: named in messages.

    Raises:
        UnreadableModel, ModelTooLarge: a field is missing, of the wrong type or out of range; the
            message names the operator and the field.
    """
    if content.get("format") != FORMAT:
        raise UnreadableModel(where, f"its format is {content.get('format')!r}, not {FORMAT!r}.")
    rows = content.get("operators")
    if not isinstance(rows, list) or not rows:
        raise UnreadableModel(where, "`operators` must be a list with at least one operator.")
    if len(rows) > MAX_OPERATORS:
        raise ModelTooLarge(where, f"it has {len(rows):,} operators; {MAX_OPERATORS:,} at most.")
    check_operators(len(rows), where)
    place: tuple[str | int, ...] = ()
    try:
        _whole(content.get("batch_size", 1), "batch_size", least=1)
        total = content.get("parameter_elements")
        _whole(0 if total is None else total, "parameter_elements")
        for field in ("source", "training"):
            _typed(content.get(field, "" if field == "source" else False), field)
        _check_bound_dimensions(content.get("bound_dimensions", []))
        assumptions = content.get("assumptions", [])
        if not isinstance(assumptions, list) or not all(isinstance(a, str) for a in assumptions):
            raise ValueError("`assumptions` must be a list of sentences")
        for name, size in content.get("stored_bytes", {}).items():
            _whole(size, f"stored_bytes.{name:.20}")
        for position, row in enumerate(watched(rows)):
            place = ("operators", position)
            _check_row(row, position)
        graph = OperatorGraph.from_json(content)
        for position, op in enumerate(watched(graph.operators)):
            place = ("operators", position)
            _check_operator(op, position)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        with in_field(*place):
            raise UnreadableModel(where, _sentence(error)) from error
    return graph


def check_graph(graph: OperatorGraph, where: str) -> OperatorGraph:
    """The same graph after validation of every shape, so that computing costs never fails.

    Raises:
        UnreadableModel: a dimension is not positive, a tensor has over 2**53 elements, or a kind
            lacks a shape it needs; the message names the operator.
        ModelTooLarge: it has more operators than work in this context may take on.
    """
    check_operators(len(graph), where)
    try:
        for position, op in enumerate(watched(graph.operators)):
            for shape in (*op.input_shapes, *op.output_shapes):
                _check_shape(list(shape), f"operator {position} ({op.name}): a shape")
            _check_operator(op, position)
    except (ValueError, IndexError, TypeError, OverflowError) as error:
        raise UnreadableModel(where, _sentence(error)) from error
    return graph


def _sentence(error: Exception) -> str:
    text = str(error.args[0]) if error.args else type(error).__name__
    return f"{text} is missing." if isinstance(error, KeyError) else f"{text}."


def _typed(value: Any, field: str) -> None:
    wanted = str if field == "source" else bool
    if not isinstance(value, wanted):
        raise ValueError(f"`{field}` is {value!r}; it must be a {wanted.__name__}")


def _whole(value: Any, what: str, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= MAX_NUMBER:
        raise ValueError(f"{what} is {value!r:.80}; it must be a whole number from {least} to 2^53")
    return value


def _check_bound_dimensions(rows: Any) -> None:
    if not isinstance(rows, list) or len(rows) > MAX_OPERANDS:
        raise ValueError(f"`bound_dimensions` must be a list of at most {MAX_OPERANDS} dimensions")
    for position, row in enumerate(rows):
        at = f"bound dimension {position}"
        if not isinstance(row, dict) or set(row) != {"input", "axis", "symbol", "size", "why"}:
            raise ValueError(f"{at} must be an object with input, axis, symbol, size and why")
        if not isinstance(row["input"], str) or not isinstance(row["symbol"], str):
            raise ValueError(f"{at}: `input` and `symbol` must be text")
        if row["why"] not in BINDING_REASONS:
            raise ValueError(f"{at}: `why` must be one of {', '.join(BINDING_REASONS)}")
        _whole(row["axis"], f"{at}: `axis`")
        _whole(row["size"], f"{at}: `size`")


def _check_row(row: Any, position: int) -> None:
    if not isinstance(row, dict):
        raise ValueError(f"operator {position} is not an object")
    at = f"operator {position}"
    if row.get("kind") not in KIND_CODE:
        kinds = ", ".join(kind.name for kind in KINDS)
        raise ValueError(f"{at} has kind {row.get('kind')!r:.60}; kinds are {kinds}")
    if not isinstance(row.get("name", ""), str):
        raise ValueError(f"{at}: `name` must be text")
    _check_edges(row, position, at)
    _whole(row.get("parameter_elements", 0), f"{at}: `parameter_elements`")
    _whole(row.get("repeat", 1), f"{at}: `repeat`", least=1)
    if not isinstance(row.get("batched", True), bool):
        raise ValueError(f"{at}: `batched` must be true or false")
    _check_attributes(row.get("attributes", {}), at)


def _check_edges(row: Mapping[str, Any], position: int, at: str) -> None:
    for field in ("input_shapes", "output_shapes"):
        shapes = row.get(field)
        if not isinstance(shapes, list) or len(shapes) > MAX_OPERANDS:
            raise ValueError(f"{at}: `{field}` must be a list of at most {MAX_OPERANDS} shapes")
        for shape in shapes:
            _check_shape(shape, f"{at}: a shape in `{field}`")
    inputs = row.get("inputs", [])
    if not isinstance(inputs, list) or len(inputs) > MAX_OPERANDS:
        raise ValueError(f"{at}: `inputs` must be a list of at most {MAX_OPERANDS} positions")
    for source in inputs:
        if type(source) is not int or not 0 <= source < position:
            raise ValueError(
                f"{at} reads operator {source!r:.40}; it must stand before (no cycles)"
            )


def _check_shape(shape: Any, what: str) -> None:
    if not isinstance(shape, list) or len(shape) > MAX_RANK:
        raise ValueError(f"{what} must be a list of at most {MAX_RANK} dimensions")
    for dimension in shape:
        _whole(dimension, f"{what}: dimension", least=1)
    if prod(shape) > MAX_NUMBER:
        raise ValueError(f"{what}, {shape}, has over 2^53 elements")


def _check_attributes(attributes: Any, at: str) -> None:
    if not isinstance(attributes, dict) or len(attributes) > MOST_ATTRIBUTES:
        raise ValueError(
            f"{at}: `attributes` must be an object of at most {MOST_ATTRIBUTES} entries"
        )
    for name, value in attributes.items():
        if isinstance(value, list) and len(value) <= MAX_RANK:
            for number in value:
                _whole(number, f"{at}: attribute {name!r:.40}", least=-MAX_NUMBER)
        elif isinstance(value, float) and not isfinite(value):
            raise ValueError(f"{at}: attribute {name!r:.40} is not finite")
        elif type(value) is int:
            _whole(value, f"{at}: attribute {name!r:.40}", least=-MAX_NUMBER)
        elif not isinstance(value, str | float):
            raise ValueError(
                f"{at}: attribute {name!r:.40} must be a number, text or whole numbers"
            )


def _check_operator(op: Operator, position: int) -> None:
    """Check an operator's shapes against what its kind requires."""
    check = _NEEDS.get(op.kind)
    missing = None if check is None else check(op)
    if missing:
        raise ValueError(f"operator {position} ({op.kind}) {missing}")
    if not all(map(isfinite, operator_cost(op))):
        raise ValueError(f"operator {position} ({op.kind}) has costs that are not finite")


def _ranks(shapes: tuple[Shape, ...]) -> list[int]:
    return [len(s) for s in shapes]


def _conv_needs(op: Operator) -> str | None:
    if not op.input_shapes or not op.output_shapes:
        return "needs an input and an output shape"
    source, target = op.input_shapes[0], op.output_shapes[0]
    if len(source) < 3 or len(target) != len(source):
        return "needs shapes (batch, channels, positions...) of equal rank"
    kernel = op.attributes.get("kernel", (1,))
    sizes = kernel if isinstance(kernel, tuple) else (kernel,)
    if not sizes or not all(type(k) is int and k > 0 for k in sizes):
        return "needs `kernel` as positive whole numbers"
    groups = op.attributes.get("groups", 1)
    if type(groups) is not int or groups < 1 or source[1] % groups or target[1] % groups:
        return "needs `groups` to divide its channels"
    return None


def _product_needs(op: Operator) -> str | None:
    if not op.input_shapes or not op.output_shapes:
        return "needs an input and an output shape"
    if not op.input_shapes[0] or not op.output_shapes[0]:
        return "needs shapes of rank 1 or more"
    return None


def _attention_needs(op: Operator) -> str | None:
    if len(op.input_shapes) < 3 or not op.output_shapes:
        return "needs three input shapes (query, key, value) and an output shape"
    if min(_ranks(op.input_shapes[:3])) < 2:
        return "needs shapes (..., length, width)"
    return None


_NEEDS: Mapping[str, Callable[[Operator], str | None]] = {
    "conv": _conv_needs,
    "conv_transpose": _conv_needs,
    "linear": _product_needs,
    "matmul": _product_needs,
    "recurrent": _product_needs,
    "attention": _attention_needs,
}
