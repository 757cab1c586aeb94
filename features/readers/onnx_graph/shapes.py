"""Shapes of every tensor of an ONNX graph, node by node, and the values of its small constants."""

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from forerun.data.graph import Shape
from forerun.features.readers.onnx_graph.binding import Binding, Tensor
from forerun.features.readers.onnx_graph.kinds import FOLDED_VALUES, KIND_OF, SIZES, STANDARD_FORM

VALUES_KEPT = 4096
"""Elements of the largest constant whose value is kept: shapes and axes, never weights."""

SIGNATURE_VALUES = 64
"""Elements of the largest constant that a node is recognised by, when it repeats an earlier one."""
_SMALL_ATTRIBUTES = frozenset(
    onnx.AttributeProto.AttributeType.Value(name)
    for name in ("INT", "FLOAT", "STRING", "INTS", "FLOATS", "STRINGS")
)

_PASSED_ON = frozenset(
    "Cast CastLike DequantizeLinear Flatten Identity Reshape Squeeze Transpose Unsqueeze".split()
)
_MADE_HERE = (
    *(shape_inference.InferenceError, onnx.checker.ValidationError),
    *(ValueError, KeyError, RuntimeError, TypeError),
)


class Shapes:
    """Shapes and values of tensors by name, inferred node by node.

    Args:
        opsets: operator set version by domain.
        binding: free dimensions.
        declared: `value_info` of the graph by name, used where inference fails.

    Attributes:
        tensors: tensors known so far.
        inferred: number of nodes whose outputs were inferred.
    """

    def __init__(
        self, opsets: Mapping[str, int], binding: Binding, declared: Mapping[str, Any]
    ) -> None:
        self._opsets = opsets
        self._imports = [helper.make_opsetid(d, v) for d, v in opsets.items()]
        self._binding = binding
        self._declared = declared
        self._known: dict[Hashable, Sequence[tuple[int, Shape | None]]] = {}
        self.inferred = 0
        self.tensors: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor | None:
        return self.tensors.get(name) if name else None

    def infer(self, node: onnx.NodeProto) -> list[Tensor]:
        """The outputs of a node, in order, without producers. Never raises for a bad node."""
        self.inferred += 1
        inputs = [self[name] for name in node.input]
        constant = node.op_type in SIZES or all(t.constant for t in inputs if t is not None)
        outputs: list[Tensor] = []
        for name, (elem_type, shape) in zip(node.output, self._inferred(node, inputs), strict=True):
            if shape is None:
                elem_type, shape = self._fallback(node, name, elem_type, inputs)
            outputs.append(Tensor(elem_type, shape, constant, root=_root(node, inputs, name)))
        if not constant or not outputs:
            return outputs
        values = self._values(node, inputs, outputs)
        return [_with_value(t, v) for t, v in zip(outputs, values, strict=True)]

    def _inferred(
        self, node: onnx.NodeProto, inputs: Sequence[Tensor | None]
    ) -> Sequence[tuple[int, Shape | None]]:
        """Element type and shape of each output; those of equal nodes are inferred once."""
        signature = _signature(node, inputs)
        known = None if signature is None else self._known.get(signature)
        if known is None:
            types = self._infer(node)
            known = [types.get(name, (0, None)) for name in node.output]
            if signature is not None:
                self._known[signature] = known
        return known

    def _infer(self, node: onnx.NodeProto) -> dict[str, tuple[int, Shape | None]]:
        op_type = STANDARD_FORM.get(node.op_type, node.op_type)
        domain = "" if op_type != node.op_type or node.domain == "ai.onnx" else node.domain
        schema = _schema(op_type, domain, self._opsets.get(domain, 0))
        if schema is None:
            return {}
        asked = onnx.NodeProto()
        asked.CopyFrom(node)
        asked.op_type, asked.domain = op_type, domain
        del asked.input[schema.max_input :]
        known = {n: self.tensors[n] for n in node.input if n in self.tensors}
        # Inference of the standard form refuses the quantised weights of a contributed operator.
        floating = op_type != node.op_type
        try:
            made = shape_inference.infer_node_outputs(
                schema,
                asked,
                {n: _type_of(t, floating) for n, t in known.items()},
                {n: _proto_of(t.value) for n, t in known.items() if t.value is not None},
                opset_imports=self._imports,
            )
        except _MADE_HERE:
            return {}
        return {name: _read_type(proto) for name, proto in made.items()}

    def _fallback(
        self,
        node: onnx.NodeProto,
        name: str,
        elem_type: int,
        inputs: Sequence[Tensor | None],
    ) -> tuple[int, Shape | None]:
        """The declared shape, else the shape of the first input for contributed operators."""
        declared = self._declared.get(name)
        if declared is not None and declared.type.HasField("tensor_type"):
            proto = declared.type.tensor_type
            if proto.HasField("shape"):
                shape = self._binding.declared_shape(list(proto.shape.dim))
                if shape is not None:
                    return proto.elem_type, shape
        if KIND_OF.get(node.op_type) == "elementwise" and name == node.output[0]:
            # Inference gives no shapes for operators that the standard defines by others.
            return elem_type or _elem_type(inputs), _broadcast(inputs)
        first = inputs[0] if inputs else None
        if node.domain not in ("", "ai.onnx") and first is not None and name == node.output[0]:
            return first.elem_type, first.shape
        return elem_type, None

    def _values(
        self, node: onnx.NodeProto, inputs: Sequence[Tensor | None], outputs: list[Tensor]
    ) -> list[Any]:
        nothing: list[Any] = [None] * len(outputs)
        if node.op_type in SIZES:
            return [_size_value(node, inputs[0]) if inputs else None, *nothing[1:]]
        if node.op_type not in FOLDED_VALUES or node.domain not in ("", "ai.onnx"):
            return nothing
        if any(t is not None and t.value is None for t in inputs):
            return nothing
        small = all(t.shape is not None and prod(t.shape) <= VALUES_KEPT for t in outputs)
        if not small and node.op_type != "NonZero":
            return nothing
        given = {n: t.value for n, t in zip(node.input, inputs, strict=True) if t is not None}
        made = _evaluate(node, given, self._imports)
        return made if len(made) == len(outputs) else nothing


def _evaluate(node: onnx.NodeProto, given: Mapping[str, Any], imports: list[Any]) -> list[Any]:
    quick = _quickly(node, [given[name] for name in node.input if name])
    if quick is not None:
        return [quick]
    from onnx.reference import ReferenceEvaluator

    graph = helper.make_graph(
        [node],
        "constant",
        [helper.make_value_info(n, _type_proto(v)) for n, v in given.items()],
        [helper.make_empty_tensor_value_info(n) for n in node.output],
    )
    with np.errstate(all="ignore"):
        try:
            evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=imports))
            return [np.asarray(v) for v in evaluator.run(None, dict(given))]
        except Exception:  # The reference operators raise whatever numpy raises on bad input.
            return []


def _quickly(node: onnx.NodeProto, given: list[Any]) -> Any:
    """Constants, and the most common steps of shape arithmetic, in NumPy; None for all others."""
    axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
    try:
        if node.op_type in ("Constant", "ConstantOfShape"):
            return _constant(node, given)
        if node.op_type == "Gather" and len(given) == 2:
            return np.take(given[0], given[1].astype(np.int64), axis=axis)
        if node.op_type == "Concat":
            return np.concatenate(given, axis=axis)
        if node.op_type in ("Add", "Sub", "Mul") and len(given) == 2:
            operation = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[node.op_type]
            return operation(given[0], given[1])
        if node.op_type == "Identity":
            return given[0]
        if node.op_type == "Unsqueeze" and len(given) == 2:
            return np.expand_dims(given[0], tuple(given[1].ravel().tolist()))
        if node.op_type == "Squeeze" and len(given) == 2:
            return np.squeeze(given[0], tuple(given[1].ravel().tolist()))
    except (IndexError, ValueError, TypeError):
        return None
    return None


def _constant(node: onnx.NodeProto, shape: list[Any]) -> Any:
    """The value of a constant given as a tensor, repeated to a shape if there is one."""
    value = next((numpy_helper.to_array(a.t) for a in node.attribute if a.name == "value"), None)
    if node.op_type == "Constant" or len(shape) != 1:
        return value
    zero = np.zeros(1, dtype=np.float32)
    return np.full(tuple(shape[0].tolist()), (zero if value is None else value).ravel()[0])


def constant_of(tensor: onnx.TensorProto) -> Tensor:
    """An initializer: its shape, and its value where that is small and stored in the file."""
    shape: Shape = tuple(tensor.dims)
    value = None
    inside = tensor.data_location != onnx.TensorProto.EXTERNAL
    if inside and 0 <= prod(shape) <= VALUES_KEPT:
        try:
            value = numpy_helper.to_array(tensor)
        except Exception:  # Damaged contents: the shape is what counts.
            value = None
    return Tensor(tensor.data_type, shape, True, value, tensor.name)


def _signature(node: onnx.NodeProto, inputs: Sequence[Tensor | None]) -> Hashable:
    """What the types of a node's outputs follow from; None where that is large."""
    if any(a.type not in _SMALL_ATTRIBUTES for a in node.attribute):
        return None
    operands: list[Hashable] = []
    for tensor in inputs:
        if tensor is None:
            operands.append(None)
        elif tensor.value is None:
            operands.append((tensor.elem_type, tensor.shape))
        elif tensor.value.size <= SIGNATURE_VALUES:
            value = tensor.value
            operands.append((tensor.elem_type, tensor.shape, value.dtype.str, value.tobytes()))
        else:
            return None
    attributes = tuple(a.SerializeToString() for a in node.attribute)
    made = tuple(map(bool, node.output))
    return node.domain, node.op_type, attributes, tuple(operands), made


@lru_cache(maxsize=1024)
def _schema(op_type: str, domain: str, version: int) -> Any:
    if not version:
        return None
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except (onnx.defs.SchemaError, TypeError):
        return None


def _type_of(tensor: Tensor, floating: bool) -> onnx.TypeProto:
    """The type of an operand; that of small integers is a float's where it shall be `floating`."""
    quantised = tensor.elem_type in (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
    elem_type = onnx.TensorProto.FLOAT if floating and quantised else tensor.elem_type
    return helper.make_tensor_type_proto(elem_type, tensor.shape)


def _type_proto(value: Any) -> onnx.TypeProto:
    return helper.make_tensor_type_proto(
        helper.np_dtype_to_tensor_dtype(value.dtype), list(value.shape)
    )


def _proto_of(value: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ascontiguousarray(value).reshape(np.shape(value)))


def _broadcast(inputs: Sequence[Tensor | None]) -> Shape | None:
    """The shape of an elementwise result; None where an operand's is not known or they differ."""
    shapes = [t.shape for t in inputs if t is not None and t.shape is not None]
    if not shapes or len(shapes) < sum(t is not None for t in inputs):
        return None
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        return None


def _elem_type(inputs: Sequence[Tensor | None]) -> int:
    return next((t.elem_type for t in inputs if t is not None), 0)


def _read_type(proto: onnx.TypeProto) -> tuple[int, Shape | None]:
    if not proto.HasField("tensor_type"):
        return 0, None
    tensor = proto.tensor_type
    if not tensor.HasField("shape"):
        return tensor.elem_type, None
    dims = list(tensor.shape.dim)
    if any(not d.HasField("dim_value") or d.dim_value < 0 for d in dims):
        return tensor.elem_type, None
    return tensor.elem_type, tuple(d.dim_value for d in dims)


def _size_value(node: onnx.NodeProto, source: Tensor | None) -> Any:
    if source is None or source.shape is None:
        return None
    if node.op_type == "Size":
        total = prod(source.shape)
        return np.array(total, dtype=np.int64) if total < 2**62 else None
    bounds = {a.name: a.i for a in node.attribute}
    return np.array(source.shape, dtype=np.int64)[bounds.get("start", 0) : bounds.get("end")]


def _with_value(tensor: Tensor, value: Any) -> Tensor:
    if value is None or value.size > VALUES_KEPT or value.dtype.kind not in "biuf":
        return tensor
    return tensor._replace(value=value, shape=tuple(value.shape))


def _root(node: onnx.NodeProto, inputs: Sequence[Tensor | None], name: str) -> str:
    first = inputs[0] if inputs else None
    passed_on = node.op_type in _PASSED_ON and first is not None and first.constant
    return first.root if passed_on and first is not None else name
