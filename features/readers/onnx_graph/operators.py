"""One ONNX node with known shapes as operators."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import onnx
from onnx import helper

from forerun.data.graph import Attribute, Operator, Shape
from forerun.features.readers.onnx_graph.shapes import KIND_OF, function_of
from forerun.features.readers.onnx_graph.tensor import Tensor

_INDEX_TYPES = frozenset(
    {onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL, onnx.TensorProto.STRING}
)
_QUANTISED_OPERANDS: Mapping[str, tuple[int, int]] = {
    "QLinearConv": (0, 3),
    "QLinearMatMul": (0, 3),
    "QGemm": (0, 3),
}
"""Positions of the two operands of nodes that list scales and zero points between them."""


class Node:
    """One node with its tensors.

    Args:
        proto: the node.
        inputs: one for each input, None where it is left out.
        outputs: one for each output.
        grows: whether a tensor grows with the batch; one that does not counts as a parameter.
    """

    def __init__(
        self,
        proto: onnx.NodeProto,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Tensor],
        grows: Callable[[Tensor], bool],
    ) -> None:
        self.op_type, self.name = proto.op_type, proto.op_type
        self.inputs, self.outputs, self.grows = inputs, outputs, grows
        self.attributes: dict[str, Any] = {
            a.name: helper.get_attribute_value(a)
            for a in proto.attribute
            if a.type not in (a.GRAPH, a.GRAPHS, a.TENSOR, a.SPARSE_TENSOR)
        }

    @property
    def activations(self) -> tuple[Shape, ...]:
        """Shapes of the operands that grow with the batch and are not empty."""
        return tuple(
            t.shape for t in self.inputs if t and t.shape is not None and self.grows(t) and _full(t)
        )

    @property
    def parameters(self) -> int:
        """Elements of the other operands: weights and constants, without indices and scalars."""
        return sum(
            prod(t.shape)
            for t in self.inputs
            if t and t.shape and not self.grows(t) and is_weight(t.elem_type, t.shape)
        )

    def shape(self, position: int) -> Shape:
        """The shape of an input; empty where it is left out or not known."""
        tensor = self.inputs[position] if position < len(self.inputs) else None
        return tensor.shape if tensor and tensor.shape is not None else ()

    def is_constant(self, position: int) -> bool:
        """Whether that input is a weight."""
        tensor = self.inputs[position] if position < len(self.inputs) else None
        return tensor is not None and not self.grows(tensor)

    def number(self, name: str, default: int) -> int:
        """An integer attribute."""
        value = self.attributes.get(name, default)
        return int(value) if isinstance(value, int | float) else default

    def numbers(self, name: str) -> tuple[int, ...]:
        """An attribute that lists integers."""
        value = self.attributes.get(name, ())
        return tuple(int(v) for v in value) if isinstance(value, list | tuple) else ()

    def operator(self, kind: str, **changes: Any) -> Operator:
        """An operator of this node's operands, with some fields changed."""
        fields: dict[str, Any] = {
            "input_shapes": self.activations,
            "output_shapes": tuple(
                t.shape for t in self.outputs if t.shape is not None and _full(t)
            ),
            "parameter_elements": self.parameters,
        }
        return Operator(kind=kind, name=self.name, **(fields | changes))


def operators_of(node: Node) -> list[Operator]:
    """The operators of a node, the last of them making its outputs.

    Operators no kind describes, and those whose shapes are not known, are `unknown`.
    """
    kind = KIND_OF.get(node.op_type, "unknown")
    known = all(t.shape is not None for t in node.outputs[:1]) and all(
        t is None or t.shape is not None for t in node.inputs
    )
    if kind == "unknown" or not known or not node.outputs:
        return [node.operator("unknown")]
    if not any(_full(t) for t in node.outputs):
        return []
    try:
        return _MAKERS.get(kind, _plain)(node, kind)
    except (IndexError, ValueError, ZeroDivisionError):
        return [node.operator("unknown")]


def _plain(node: Node, kind: str) -> list[Operator]:
    return [node.operator(kind)]


def _elementwise(node: Node, kind: str) -> list[Operator]:
    return [node.operator(kind, attributes={"function": function_of(node.op_type)})]


def _conv(node: Node, kind: str) -> list[Operator]:
    data, weight = _QUANTISED_OPERANDS.get(node.op_type, (0, 1))
    shape, kernel = node.shape(weight), node.shape(weight)[2:]
    if len(node.shape(data)) != len(shape) or len(shape) < 3:
        raise ValueError(node.op_type)
    rank = len(kernel)
    pads = node.numbers("pads")
    attributes: dict[str, Attribute] = {
        "kernel": kernel,
        "stride": node.numbers("strides") or (1,) * rank,
        "padding": pads[:rank] or (0,) * rank,
        "groups": max(1, node.number("group", 1)),
    }
    if any(d != 1 for d in node.numbers("dilations")):
        attributes["dilation"] = node.numbers("dilations")
    inputs = (node.shape(data), *(() if node.is_constant(weight) else (shape,)))
    return [node.operator(kind, input_shapes=inputs, attributes=attributes)]


def _gemm(node: Node, kind: str) -> list[Operator]:
    if node.op_type in ("MatMulNBits", "MatMulBnb4"):
        k, n = node.number("K", 1), node.number("N", 1)
        return [node.operator("linear", parameter_elements=k * n)]
    left, right = _QUANTISED_OPERANDS.get(node.op_type, (0, 1))
    a, b = node.shape(left), node.shape(right)
    a = a[::-1] if node.number("transA", 0) else a
    b = b[::-1] if node.number("transB", 0) else b
    return _product(node, a, b, right, left)


def _matmul(node: Node, kind: str) -> list[Operator]:
    if node.op_type == "Einsum":
        return _einsum(node)
    left, right = _QUANTISED_OPERANDS.get(node.op_type, (0, 1))
    a, b = node.shape(left), node.shape(right)
    a = (*a[:-2], a[-1], a[-2]) if node.number("transA", 0) else a
    b = (*b[:-2], b[-1], b[-2]) if node.number("transB", 0) else b
    return _product(node, a, b, right, left)


def _product(node: Node, a: Shape, b: Shape, right: int, left: int) -> list[Operator]:
    """A x B: `linear` where one is a weight matrix, else `matmul`."""
    out = _output(node)
    a, out = (a, out) if len(a) > 1 else ((1, *a), (*out[:-1], 1, *out[-1:]))
    b, out = (b, out) if len(b) > 1 else ((*b, 1), (*out, 1))
    if node.is_constant(right) and len(b) == 2:
        return [node.operator("linear", input_shapes=(a,), output_shapes=(out,))]
    if node.is_constant(left) and len(a) == 2:
        # A weight on the left: the same arithmetic as the transposed product.
        turned, result = (*b[:-2], b[-1], b[-2]), (*out[:-2], out[-1], out[-2])
        return [node.operator("linear", input_shapes=(turned,), output_shapes=(result,))]
    shapes = tuple(s for s, i in ((a, left), (b, right)) if not node.is_constant(i))
    if node.is_constant(left):
        shapes = (a, b)
    return [node.operator("matmul", input_shapes=shapes, output_shapes=(out,))]


def _einsum(node: Node) -> list[Operator]:
    """Two operands: batched product over the summed letters. Others count as unknown."""
    raw = node.attributes.get("equation", b"")
    equation = (raw.decode() if isinstance(raw, bytes) else str(raw)).replace(" ", "")
    terms, _, result = equation.partition("->")
    operands = terms.split(",")
    shapes = [node.shape(i) for i in range(len(operands))]
    fits = all(len(t) == len(s) for t, s in zip(operands, shapes, strict=True))
    if len(operands) != 2 or not fits or "." in equation or not result:
        return [node.operator("unknown")]
    size = {
        letter: n
        for t, s in zip(operands, shapes, strict=True)
        for letter, n in zip(t, s, strict=True)
    }
    first, second = (set(t) for t in operands)
    shared = first & second
    batch = prod(size[c] for c in shared & set(result))
    k = prod(size[c] for c in shared - set(result))
    m = prod(size[c] for c in first - second)
    n = prod(size[c] for c in second - first)
    if node.is_constant(1) and batch == 1:
        return [node.operator("linear", input_shapes=((m, k),), output_shapes=((m, n),))]
    pair = ((batch, m, k), (batch, k, n))
    return [node.operator("matmul", input_shapes=pair, output_shapes=((batch, m, n),))]


def _attention(node: Node, kind: str) -> list[Operator]:
    """Queries, keys and values as (batch, heads, length, width) each."""
    if node.op_type == "Attention" and len(node.shape(1)) == 2:
        return _fused_projection(node)
    heads = node.number("q_num_heads", node.number("num_heads", 1))
    shared = node.number("kv_num_heads", heads)
    split = [
        _heads(node.shape(i), heads if i == 0 else shared) for i in range(min(3, len(node.inputs)))
    ]
    query, key, value = split
    attributes = {"function": "scaled_dot_product_attention"}
    result = (*query[:-1], value[-1])
    shapes = (query, key, value)
    return [
        node.operator(kind, input_shapes=shapes, output_shapes=(result,), attributes=attributes)
    ]


def _fused_projection(node: Node) -> list[Operator]:
    """The contributed `Attention`: one product for queries, keys and values, then attention."""
    source, weight = node.shape(0), node.shape(1)
    heads = max(1, node.number("num_heads", 1))
    batch, length, width = source[0], source[1], weight[1] // 3 // heads
    projected = (batch, length, weight[1])
    part = (batch, heads, length, width)
    attributes = {"function": "scaled_dot_product_attention"}
    return [
        node.operator("linear", input_shapes=(source,), output_shapes=(projected,)),
        node.operator(
            "attention",
            input_shapes=(part, part, part),
            parameter_elements=0,
            attributes=attributes,
        ),
    ]


def _heads(shape: Shape, heads: int) -> Shape:
    if len(shape) == 3:
        batch, length, width = shape
        return (batch, heads, length, max(1, width // heads))
    if len(shape) != 4:
        raise ValueError(shape)
    return shape


def _recurrent(node: Node, kind: str) -> list[Operator]:
    """A recurrent layer: its input, and its state (directions, batch, width)."""
    source, weight = node.shape(0), node.shape(2)
    samples = source[0] if node.number("layout", 0) else source[1]
    state = (weight[0], samples, node.number("hidden_size", weight[-1]))
    given = [t for t in (*node.inputs[1:4], *node.inputs[7:8]) if t and t.shape]
    weights = sum(prod(t.shape) for t in given if t.shape and not node.grows(t))
    return [node.operator(kind, input_shapes=(source, state), parameter_elements=weights)]


def _rows(node: Node, kind: str) -> list[Operator]:
    """Normalisations, softmax and reductions, with the number of elements of each result."""
    source, out = node.shape(0), _output(node)
    axis = node.number("axis", -1)
    if kind == "reduce":
        width = prod(source) // max(1, prod(out))
    elif kind == "softmax":
        width = source[axis]
    elif kind == "layer_norm":
        width = prod(source[axis:]) if axis else prod(source)
    else:
        channels = source[1] if len(source) > 1 else 1
        groups = node.number("num_groups", node.number("groups", channels))
        width = prod(source[1:]) // max(1, groups)
    return [node.operator(kind, attributes={"width": max(1, width)})]


def _pool(node: Node, kind: str) -> list[Operator]:
    kernel = node.numbers("kernel_shape")
    attributes: dict[str, Attribute] = {}
    if kernel:
        attributes = {"kernel": kernel, "stride": node.numbers("strides") or (1,) * len(kernel)}
    return [node.operator(kind, attributes=attributes)]


def _copy(node: Node, kind: str) -> list[Operator]:
    table = node.shape(0)
    if node.op_type == "Gather" and node.is_constant(0) and len(table) == 2:
        return [node.operator("embedding", parameter_elements=prod(table))]
    return [node.operator(kind)]


def _output(node: Node) -> Shape:
    shape = node.outputs[0].shape
    return shape if shape is not None else ()


def _full(tensor: Tensor) -> bool:
    return tensor.shape is not None and 0 not in tensor.shape


def is_weight(elem_type: int, shape: Shape) -> bool:
    """Whether a constant is a weight: no index and no scalar."""
    return elem_type not in _INDEX_TYPES and shape not in ((), (1,))


_MAKERS: Mapping[str, Callable[[Node, str], list[Operator]]] = {
    "conv": _conv,
    "conv_transpose": _conv,
    "linear": _gemm,
    "matmul": _matmul,
    "attention": _attention,
    "recurrent": _recurrent,
    "softmax": _rows,
    "layer_norm": _rows,
    "group_norm": _rows,
    "reduce": _rows,
    "pool": _pool,
    "copy": _copy,
    "elementwise": _elementwise,
}
