"""Shapes of every tensor of an ONNX graph, node by node, and the values of its small constants.

Free dimensions of the inputs are bound to the numbers of a question.
"""

import re
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from forerun.data.errors import BadShape, UnreadableModel
from forerun.data.facts import facts_of
from forerun.data.graph import BindingReason, BoundDimension, Shape
from forerun.features.readers.input_sizes import (
    DEFAULT_CHANNELS,
    DEFAULT_IMAGE_SIZE,
    DEFAULT_SEQUENCE_LENGTH,
    MAX_SIZE,
    GivenShape,
    InputSizes,
)
from forerun.features.readers.onnx_graph.tensor import Tensor, from_sequences

_NAMES = facts_of(__file__)
VIEWS = frozenset(_NAMES["views"])
"""Operators that move no data in inference: their readers are linked to what they view."""
STANDARD_FORM: Mapping[str, str] = _NAMES["standard_form"]
"""Contributed operators whose output has the shape of a standard one's."""
FOLDED_VALUES = frozenset(_NAMES["folded"])
"""Operators whose value is computed when all their inputs are small constants."""
KIND_OF: Mapping[str, str] = {
    name: kind for kind, names in _NAMES["kinds"].items() for name in names
}

SIZES = frozenset({"Shape", "Size", "SequenceLength"})
"""Operators that read only the size of a tensor, which is known before the run."""


def function_of(op_type: str) -> str:
    """The `function` attribute of an elementwise operator, as torch calls it."""
    return str(_NAMES["functions"].get(op_type, op_type.lower()))


_BATCH = re.compile(r"^(n|b|bs|batch.*|.*_batch|.*batch_?size.*)$", re.IGNORECASE)
_PAST = re.compile(r"past", re.IGNORECASE)
_SEQUENCE = re.compile(r"seq|len|time|token|frame|^t$|^s$|^l$", re.IGNORECASE)
_IMAGE = re.compile(r"^(h|w|height|width|.*(height|width|size|image).*)$", re.IGNORECASE)
_CHANNELS = re.compile(r"^(c|.*channel.*)$", re.IGNORECASE)
_STATE = re.compile(r"state|hidden|^[hc]_?[0n]?$", re.IGNORECASE)
"""Names of inputs that hold the state of a recurrent layer, whose second dimension is the batch."""
_NO_NAMES = frozenset({"", "?", "*", "-1", "None", "none", "unk", "unknown", "dynamic"})
"""Labels that exporters write for dimensions without a name; two of them may differ in size."""

InputDims = Mapping[str, Sequence[Any]]
"""Name of an input -> its `TensorShapeProto.Dimension`s."""


class Binding:
    """Names of free dimensions -> sizes.

    A given shape decides first. The first dimension of an input, and what is called batch, is the
    batch. Names that speak of a sequence get the sequence length, lengths of the past get 0 (a
    prompt is read, not a next token), heights and widths the image size, channels 3. Without a
    name, an input of rank 4 is an image and one of lower rank a sequence.

    Args:
        sizes: what the question gives.
        batch: size at which batch dimensions are read.
        inputs: the graph's inputs.
        where: name of the file in messages.

    Raises:
        BadShape: a given shape contradicts the inputs.
        UnreadableModel: a dimension is zero or negative.
    """

    def __init__(self, sizes: InputSizes, batch: int, inputs: InputDims, where: str) -> None:
        self.batch = batch
        self.batch_is_free = False
        self.bound: list[BoundDimension] = []
        self._sizes, self._inputs, self._where = sizes, inputs, where
        self._named: dict[str, tuple[int, BindingReason]] = {}
        self._given: dict[tuple[str, int], int] = {}
        for name, shape in sizes.shapes.items():
            self._take_given(name, shape)
        self.shapes = {name: self._shape(name, dims) for name, dims in inputs.items()}
        self._check_image_size()

    def declared_shape(self, dims: list[Any]) -> Shape | None:
        """The shape that a `value_info` declares; None where no input has one of its dimensions."""
        found: list[int] = []
        for dim in dims:
            if dim.HasField("dim_value"):
                found.append(dim.dim_value)
            elif dim.dim_param in self._named:
                found.append(self._named[dim.dim_param][0])
            else:
                return None
        return tuple(found)

    def _take_given(self, name: str, shape: GivenShape) -> None:
        dims = self._inputs.get(name)
        if dims is None:
            raise self._contradiction(f"there is no input {name!r:.80}")
        if len(dims) != len(shape):
            raise self._contradiction(f"{name!r} has {len(dims)} dimensions, not {len(shape)}")
        for axis, (dim, size) in enumerate(zip(dims, shape, strict=True)):
            if size is None:
                continue
            if not 1 <= size <= MAX_SIZE:
                raise self._contradiction(
                    f"dimension {axis} of {name!r} is given as {size}; sizes are from 1 to "
                    f"{MAX_SIZE:,}"
                )
            label = dim.dim_param
            if not is_free(dim):
                if size != dim.dim_value:
                    raise self._contradiction(
                        f"dimension {axis} of {name!r} is fixed at {dim.dim_value}, not {size}"
                    )
            elif not self._is_batch_of(name, label, axis, size):
                self._given[name, axis] = size
                if label not in _NO_NAMES and self._name(label, size, "given") != size:
                    raise self._contradiction(f"{label!r} is given two sizes")

    def _is_batch_of(self, name: str, label: str, axis: int, size: int) -> bool:
        """Whether a given size is that of the batch, by the dimension's name or place."""
        batch = self._sizes.batch_size
        if _is_batch(label, axis) and size != batch:
            raise self._contradiction(
                f"dimension {axis} of {name!r} is the batch, given as {size}, but the batch size "
                f"is {batch} (write ? in its place)"
            )
        return _is_batch(label, axis)

    def _name(self, label: str, size: int, why: BindingReason) -> int:
        """Remember the size of a named dimension; returns the size that it has."""
        return self._named.setdefault(label, (size, why))[0]

    def _check_image_size(self) -> None:
        """Refuse an image size that no dimension can take and that no input has already."""
        pixels = self._sizes.image_size
        free = any(bound.size == pixels and bound.why == "given" for bound in self.bound)
        fixed = any(len(s) == 4 and s.count(pixels) >= 2 for s in self.shapes.values() if pixels)
        if pixels is not None and not free and not fixed:
            raise self._contradiction(f"no input has a free height or width to be {pixels}")

    def _contradiction(self, what: str) -> BadShape:
        listed = ", ".join(f"{name} {_described(dims)}" for name, dims in self._inputs.items())
        return BadShape(f"{self._where}: {what}; its inputs are {listed:.600}.")

    def _shape(self, name: str, dims: Sequence[Any]) -> Shape:
        return tuple(self._bound(name, dim, axis, dims) for axis, dim in enumerate(dims))

    def _bound(self, name: str, dim: Any, axis: int, dims: Sequence[Any]) -> int:
        if not is_free(dim):
            if dim.dim_value <= 0:
                raise UnreadableModel(
                    f"input {name!r}", f"dimension {axis} is {dim.dim_value}; it must be positive."
                )
            return int(dim.dim_value)
        label, given = dim.dim_param, self._given.get((name, axis))
        why: BindingReason = "given"
        if given is not None:
            size = given
        elif label in self._named:
            size, why = self._named[label]
        else:
            size, why = self._sum_of_named(label) or self._guess(label, axis, dims, name)
            if label not in _NO_NAMES:
                self._name(label, size, why)
        self.batch_is_free |= why == "batch"
        self.bound.append(BoundDimension(name, axis, label, size, why))
        return size

    def _sum_of_named(self, label: str) -> tuple[int, BindingReason] | None:
        """`past_sequence_length + sequence_length`, where each part is named or a number."""
        parts = [p.strip() for p in label.split("+")]
        if len(parts) < 2:
            return None
        known = (self._named.get(p) or self._guess(p, 1, []) for p in parts if not p.isdigit())
        return sum(int(p) for p in parts if p.isdigit()) + sum(s for s, _ in known), "sum_of_others"

    def _guess(
        self, label: str, axis: int, dims: Sequence[Any], name: str = ""
    ) -> tuple[int, BindingReason]:
        is_state = axis == 1 and len(dims) == 3 and _STATE.search(name) and not is_free(dims[0])
        if _is_batch(label, axis) or is_state:
            return self.batch, "batch"
        if _PAST.search(label):
            return 0, "empty_past"
        if _SEQUENCE.search(label):
            return self._length()
        if _CHANNELS.match(label):
            return DEFAULT_CHANNELS, "default_channels"
        if _IMAGE.match(label):
            return self._pixels()
        if len(dims) < 4:
            return self._length()
        channels_last = dims[-1].HasField("dim_value") and dims[-1].dim_value in (1, 3, 4)
        is_channel = axis == (len(dims) - 1 if channels_last else 1)
        return (DEFAULT_CHANNELS, "default_channels") if is_channel else self._pixels()

    def _length(self) -> tuple[int, BindingReason]:
        given = self._sizes.sequence_length
        return (given, "given") if given else (DEFAULT_SEQUENCE_LENGTH, "default_sequence_length")

    def _pixels(self) -> tuple[int, BindingReason]:
        given = self._sizes.image_size
        return (given, "given") if given else (DEFAULT_IMAGE_SIZE, "default_image_size")


def is_free(dim: Any) -> bool:
    """Whether a `TensorShapeProto.Dimension` has no size; some exporters write that as -1."""
    return not dim.HasField("dim_value") or dim.dim_value == -1


def _is_batch(label: str, axis: int) -> bool:
    return bool(_BATCH.match(label)) or (axis == 0 and not _SEQUENCE.search(label))


def _described(dims: Sequence[Any]) -> str:
    """An input's shape as its file gives it, such as `[batch, 3, ?, ?]`."""
    sizes = (str(dim.dim_value) if not is_free(dim) else dim.dim_param or "?" for dim in dims)
    return f"[{', '.join(sizes)}]"


VALUES_KEPT = 4096
"""Elements of the largest constant whose value is kept: shapes and axes, never weights."""

SIGNATURE_VALUES = 64
"""Elements of the largest constant that a node is recognised by, when it repeats an earlier one."""
_SMALL_ATTRIBUTES = frozenset(
    onnx.AttributeProto.AttributeType.Value(name)
    for name in ("INT", "FLOAT", "STRING", "INTS", "FLOATS", "STRINGS")
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
        depend_on_data: kinds of nodes whose results are as many as is possible.
    """

    def __init__(
        self, opsets: Mapping[str, int], binding: Binding, declared: Mapping[str, Any]
    ) -> None:
        self._opsets = opsets
        self._imports = [helper.make_opsetid(d, v) for d, v in opsets.items()]
        self._binding = binding
        self._declared = declared
        self._known: dict[Hashable, Sequence[tuple[int, Shape | None]]] = {}
        self.depend_on_data: dict[str, None] = {}
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
        made = from_sequences(node, inputs)
        if made is not None:
            return [made._replace(constant=constant, producers=())]
        for name, (elem_type, shape) in zip(node.output, self._inferred(node, inputs), strict=True):
            if shape is None:
                elem_type, shape = self._fallback(node, name, elem_type, inputs)
            outputs.append(Tensor(elem_type, shape, constant))
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
        self, node: onnx.NodeProto, name: str, elem_type: int, inputs: Sequence[Tensor | None]
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
            first_type = next((t.elem_type for t in inputs if t is not None), 0)
            return elem_type or first_type, _broadcast(inputs)
        first = inputs[0] if inputs else None
        classical = _classical(node, first)
        if classical is not None and name in node.output[:2]:
            return classical[list(node.output).index(name)]
        most = _largest(node, inputs) if name == node.output[0] else None
        if most is not None:
            self.depend_on_data.setdefault(node.op_type)
            return onnx.TensorProto.INT64 if elem_type == 0 else elem_type, most
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


def _largest(node: onnx.NodeProto, inputs: Sequence[Tensor | None]) -> Shape | None:
    """The largest result of a node whose number of results depends on the data; None of others."""
    shapes = [() if t is None else t.shape for t in inputs]
    least = {"NonZero": 1, "NonMaxSuppression": 2}.get(node.op_type, len(shapes) + 1)
    if node.domain not in ("", "ai.onnx") or len(shapes) < least or None in shapes[:2]:
        return None
    if node.op_type == "NonZero":
        return len(shapes[0] or ()), prod(shapes[0] or ())
    if len(shapes[1] or ()) != 3:
        return None
    batch, classes, boxes = shapes[1] or ()
    most = inputs[2].value if len(inputs) > 2 and inputs[2] is not None else None
    known = boxes if most is None or most.size != 1 else min(boxes, int(most.ravel()[0]))
    return batch * classes * known, 3


def _classical(
    node: onnx.NodeProto, rows: Tensor | None
) -> tuple[tuple[int, Shape], tuple[int, Shape]] | None:
    """Results of a classifier or regression of `ai.onnx.ml`: of a row a label, and its scores."""
    if node.domain != "ai.onnx.ml" or rows is None or not rows.shape:
        return None
    count, numbers = rows.shape[0], onnx.TensorProto.FLOAT
    if node.op_type.endswith("Classifier"):
        labels = [a for a in node.attribute if a.name.startswith("classlabels")]
        classes = max((len(a.ints) + len(a.strings) for a in labels), default=1)
        named = any(a.strings for a in labels)
        label = onnx.TensorProto.STRING if named else onnx.TensorProto.INT64
        return (label, (count,)), (numbers, (count, classes))
    if node.op_type in ("TreeEnsemble", "TreeEnsembleRegressor", "LinearRegressor", "SVMRegressor"):
        targets = (a.i for a in node.attribute if a.name in ("n_targets", "targets"))
        return ((numbers, (count, next(targets, 1))),) * 2
    return None


def _evaluate(node: onnx.NodeProto, given: Mapping[str, Any], imports: list[Any]) -> list[Any]:
    quick = _quickly(node, [given[name] for name in node.input if name])
    if quick is not None:
        return [quick]
    from onnx.reference import ReferenceEvaluator

    graph = helper.make_graph(
        [node],
        "constant",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for n, v in given.items()
        ],
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
    return Tensor(tensor.data_type, shape, True, value)


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
    if node.op_type == "SequenceLength":
        items = None if source is None else source.items
        return None if items is None else np.array(len(items), dtype=np.int64)
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
