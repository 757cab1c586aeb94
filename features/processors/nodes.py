"""Nodes that onnxruntime runs on a CPU, with their kinds and amounts of work."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from forerun.data.graph import Operator
from forerun.features.operators.costs import groups_of

BLOCK = 16
"""Channels per block for vectors of 16 floats (AVX-512); 8 with AVX2 changes little."""

CONV_KINDS = ("conv_first", "conv_point", "conv_direct", "conv_depth", "conv_group", "conv_plain")
NODE_KINDS = (
    *CONV_KINDS,
    *("gemm", "bmm", "recurrent", "add", "broadcast", "cheap", "exponential", "erf", "softmax"),
    *("layer_norm", "batch_norm", "pool", "mean", "concat", "transpose", "gather", "resize"),
    *("reduce", "reorder", "copy", "attention", "neighbourhood", "unknown"),
)
"""Node kinds; nodes of one kind share efficiencies."""

_CHEAP = frozenset(
    "relu leaky_relu clamp abs neg floor ceil round sign hardsigmoid hardswish".split()
)
_BINARY = frozenset("add mul sub div maximum minimum where pow".split())


@dataclass(frozen=True, slots=True)
class CpuNode:
    """One node of a network as executed, at the graph's own batch size.

    Attributes:
        kind: one of `NODE_KINDS`.
        flops: a multiply-add counts as two; for nodes that are not products, function values.
        read, written: bytes of activations.
        weights: bytes of parameters.
        rows: rows of a product (output pixels, or tokens); for other nodes, results.
        columns, depth: for products, output channels and terms per sum; else 1.
        scales: whether everything but the weights grows with the batch.
        repeat: number of executions.
    """

    kind: str
    flops: float
    read: float
    written: float
    weights: float = 0.0
    rows: float = 1.0
    columns: float = 1.0
    depth: float = 1.0
    scales: bool = True
    repeat: int = 1


def kind_of(op: Operator) -> str:
    """The kind, of `NODE_KINDS`, of an operator that is not fused."""
    if op.kind == "conv":
        return _conv_kind(op)
    function = function_name(op)
    if op.kind == "elementwise":
        if function == "lrn":
            return "neighbourhood"
        if function in _BINARY:
            same = {tuple(shape) for shape in op.input_shapes} <= set(op.output_shapes)
            return "add" if same or len(op.input_shapes) < 2 else "broadcast"
        if function in ("erf", "gelu"):
            return "erf"
        return "cheap" if function in _CHEAP else "exponential"
    if op.kind == "copy":
        return {"Concat": "concat", "Transpose": "transpose"}.get(op.name, _copy_kind(op))
    if op.kind == "reduce":
        return "mean" if op.name == "GlobalAveragePool" else "reduce"
    same_name = {
        "linear": "gemm",
        "matmul": "bmm",
        "embedding": "gather",
        "group_norm": "layer_norm",
    }
    kind = {"conv_transpose": "conv_plain", **same_name}.get(op.kind, op.kind)
    return kind if kind in NODE_KINDS else "unknown"


def _copy_kind(op: Operator) -> str:
    if not op.input_shapes or not op.output_shapes or op.name in ("Gather", "Slice"):
        return "copy"
    source, target = op.input_shapes[0], op.output_shapes[0]
    return "transpose" if source != target and sorted(source) == sorted(target) else "copy"


def _conv_kind(op: Operator) -> str:
    groups = groups_of(op)
    source, target = op.input_shapes[0], op.output_shapes[0]
    if len(source) != 4:
        return "conv_plain"
    kernel = op.attributes.get("kernel", (1, 1))
    if groups == 1:
        if source[1] < BLOCK:
            return "conv_first"
        return "conv_point" if prod(_pair(kernel)) == 1 else "conv_direct"
    if groups == source[1] and groups == target[1]:
        return "conv_depth"
    inner, outer = source[1] // groups, target[1] // groups
    return "conv_group" if inner % BLOCK == 0 and outer % BLOCK == 0 else "conv_plain"


def node_of(op: Operator, kind: str) -> CpuNode:
    """An operator as a node of a given kind."""
    read, written = bytes_of(op.input_shapes), bytes_of(op.output_shapes)
    weights = 4.0 * op.parameter_elements
    made = _PRODUCTS.get(kind)
    if made is not None and op.output_shapes and op.input_shapes:
        rows, columns, depth, flops = made(op)
        if kind == "conv_plain" and prod(_pair(op.attributes.get("kernel", (1, 1)))) > 1:
            # Windows are copied into a matrix before multiplication.
            read = max(read, 4.0 * rows * depth * groups_of(op))
        return CpuNode(kind, flops, read, written, weights, rows, columns, depth)
    values = max(read, written) / 4 if kind in ("reduce", "mean") else written / 4
    if kind == "pool":
        kernel = op.attributes.get("kernel")
        values = values * prod(_pair(kernel)) if kernel is not None else read / 4
    if kind in ("gather",):
        read, weights = written, 0.0
    return CpuNode(kind, values, read, written, weights, rows=max(1.0, written / 4))


def _conv_product(op: Operator) -> tuple[float, float, float, float]:
    source, target = op.input_shapes[0], op.output_shapes[0]
    if op.kind == "conv_transpose":
        source, target = target, source
    groups = groups_of(op)
    kernel = prod(_pair(op.attributes.get("kernel", (1, 1))))
    rows, columns, inner = target[0] * prod(target[2:]), target[1], source[1] / groups
    if groups == 1 and len(source) == 4:
        # Incomplete blocks cost as much as complete ones.
        columns = -(-columns // BLOCK) * BLOCK
        inner = inner if inner < BLOCK else -(-inner // BLOCK) * BLOCK
    depth = inner * kernel
    return float(rows), float(columns), float(depth), 2.0 * rows * columns * depth


def _matrix_product(op: Operator) -> tuple[float, float, float, float]:
    depth, columns = op.input_shapes[0][-1], op.output_shapes[0][-1]
    rows = prod(op.output_shapes[0]) / max(1, columns)
    return float(rows), float(columns), float(depth), 2.0 * rows * columns * depth


def _batched_product(op: Operator) -> tuple[float, float, float, float]:
    target, depth = op.output_shapes[0], op.input_shapes[0][-1]
    rows = target[-2] if len(target) > 1 else 1
    return float(rows), float(target[-1]), float(depth), 2.0 * prod(target) * depth


def _attention_product(op: Operator) -> tuple[float, float, float, float]:
    query, key = op.input_shapes[0], op.input_shapes[min(1, len(op.input_shapes) - 1)]
    flops = 4.0 * prod(query) * key[-2]
    return float(query[-2]), float(key[-2]), float(query[-1]), flops


def _recurrent_product(op: Operator) -> tuple[float, float, float, float]:
    steps = prod(op.input_shapes[0][:-1])
    return float(steps), 1.0, float(op.input_shapes[0][-1]), 2.0 * op.parameter_elements * steps


_PRODUCTS: dict[str, Callable[[Operator], tuple[float, float, float, float]]] = {
    **dict.fromkeys(CONV_KINDS, _conv_product),
    "gemm": _matrix_product,
    "bmm": _batched_product,
    "attention": _attention_product,
    "recurrent": _recurrent_product,
}


def function_name(op: Operator) -> str:
    """Name of an elementwise operator's function; empty for other kinds."""
    return str(op.attributes.get("function", "")) if op.kind == "elementwise" else ""


def _pair(value: object) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (int(value),)  # type: ignore[call-overload]


def bytes_of(shapes: Sequence[tuple[int, ...]]) -> float:
    """Bytes of tensors of these shapes in fp32."""
    return 4.0 * sum(map(prod, shapes))
