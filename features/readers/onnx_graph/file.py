"""An ONNX file as a validated protobuf without weights; errors of files are raised here."""

from collections.abc import Container, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from math import prod
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import helper, inliner

from forerun.data.errors import ModelTooLarge, UnreadableModel
from forerun.data.graph import Shape
from forerun.features.deadline import check_operators, watched
from forerun.features.readers.onnx_graph.shapes import VALUES_KEPT, constant_of

MAX_NODES = 100_000
_NEWEST_VERSION = 2**31 - 1
MAX_ELEMENTS = 2**53
"""Elements of the largest tensor: larger counts are not exact in a float64."""
STANDARD = ("", "ai.onnx")
"""The domain of standard operators, which has two names."""
FORMATS: Mapping[int, str] = {
    elem_type: helper.tensor_dtype_to_np_dtype(elem_type).name
    for name, elem_type in onnx.TensorProto.DataType.items()
    if name not in ("UNDEFINED", "STRING")
}
"""Element type -> name of the number format."""
_WEIGHED = frozenset("Conv Gemm MatMul BatchNormalization Reshape Unsqueeze".split())
"""Readers of weights that are left out of a file."""


def parse(source: Path | bytes, where: str) -> onnx.ModelProto:
    """The model in the file, weights emptied (only their shapes are needed), functions inlined.

    External data is never opened.

    Raises:
        UnreadableModel: not an ONNX model, damaged, empty, or with recursive functions.
        ModelTooLarge: more nodes than `MAX_NODES`, or than work in this context may take on.
    """
    content = source.read_bytes() if isinstance(source, Path) else source
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except (DecodeError, ValueError, RecursionError) as error:
        raise UnreadableModel(where, "it is not an ONNX model, or it is truncated.") from error
    if not model.graph.node or not model.opset_import:
        raise UnreadableModel(where, "it is not an ONNX model: no operators or no operator set.")
    if not all(isinstance(name, str) for name in _names(model)):
        raise UnreadableModel(where, "it is damaged: a name in it is not text.")
    _empty(model.graph)
    for function in model.functions:
        _empty(function)
    if model.functions:
        model = _inlined(model, where)
    if len(model.graph.node) > MAX_NODES:
        raise ModelTooLarge(where, f"it has over {MAX_NODES:,} operators.")
    check_operators(len(model.graph.node), where)
    return model


def opsets(model: onnx.ModelProto) -> Mapping[str, int]:
    """Domain -> version, `ai.onnx` as the empty name; unknown versions become the newest known."""
    newest = onnx.defs.onnx_opset_version()
    found = {o.domain if o.domain != "ai.onnx" else "": o.version for o in model.opset_import}
    return {
        domain: max(1, min(version, newest if domain == "" else _NEWEST_VERSION))
        for domain, version in found.items()
    }


def ordered(
    nodes: Iterable[onnx.NodeProto], given: Container[str], where: str, *, shadows: bool = False
) -> list[onnx.NodeProto]:
    """The nodes so that each comes after those it reads from.

    Args:
        nodes: nodes, in any order.
        given: names known before the first node: inputs and weights.
        where: position of the message.
        shadows: whether nodes may redefine given names, as those of branches do.

    Raises:
        UnreadableModel: a name is not text, two nodes make one tensor, the nodes form a cycle, or a
            node reads a tensor that no node makes.
    """
    listed = list(nodes)
    if not all(isinstance(name, str) for node in watched(listed) for name in _node_names(node)):
        raise UnreadableModel(where, "it is damaged: a name in it is not text.")
    maker: dict[str, int] = {}
    for position, node in enumerate(watched(listed)):
        for name in filter(None, node.output):
            if name in maker or (name in given and not shadows):
                raise UnreadableModel(where, f"tensor {name!r} is produced twice.")
            maker[name] = position
    for node in watched(listed):
        for name in filter(None, node.input):
            if name not in maker and name not in given:
                what = node.name or node.op_type
                raise UnreadableModel(where, f"{what!r} reads {name!r}, which nothing produces.")
    sources = {i: [maker[n] for n in node.input if n in maker] for i, node in enumerate(listed)}
    if all(s < i for i, before in sources.items() for s in before):
        return listed
    try:
        return [listed[i] for i in TopologicalSorter(sources).static_order()]
    except CycleError as error:
        name = listed[error.args[1][0]].name or listed[error.args[1][0]].op_type
        raise UnreadableModel(where, f"its operators form a cycle through {name!r}.") from error


def check_dimensions(name: str, shape: Iterable[int], where: str) -> None:
    """Refuse shapes that do not fit on any machine.

    Raises:
        UnreadableModel: a dimension is zero or negative, or there are over 2**53 elements.
    """
    dims = tuple(shape)
    if any(d <= 0 for d in dims):
        raise UnreadableModel(where, f"tensor {name!r} has shape {list(dims)}; all must be > 0.")
    if prod(dims) > MAX_ELEMENTS:
        raise UnreadableModel(where, f"tensor {name!r} of shape {list(dims)} is too large.")


def _names(model: onnx.ModelProto) -> Iterator[object]:
    """Names outside the nodes. Protobuf returns names that are not UTF-8 as bytes."""
    for opset in model.opset_import:
        yield opset.domain
    for tensor in model.graph.initializer:
        yield tensor.name
    for entry in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        yield entry.name
        yield from (dim.dim_param for dim in entry.type.tensor_type.shape.dim)


def _node_names(node: onnx.NodeProto) -> Iterator[object]:
    yield from (node.op_type, node.domain, node.name, *node.input, *node.output)
    yield from (attribute.name for attribute in node.attribute)


def _empty(graph: onnx.GraphProto | onnx.FunctionProto) -> None:
    """Drop the contents of large tensors and lists, which shape inference would copy.

    Long lists of floats of operators outside the standard, such as those of trees, become tensors.
    """
    for tensor in getattr(graph, "initializer", ()):
        _empty_tensor(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            for tensor in _tensors(attribute):
                _empty_tensor(tensor)
            for body in _bodies(attribute):
                _empty(body)
            if node.domain not in STANDARD:
                _empty_lists(attribute)


def _empty_tensor(tensor: onnx.TensorProto) -> None:
    if prod(tensor.dims) > VALUES_KEPT:
        for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data"):
            tensor.ClearField(field)


def _empty_lists(attribute: onnx.AttributeProto) -> None:
    for field in ("ints", "strings", "floats"):
        count = len(getattr(attribute, field))
        if count > VALUES_KEPT:
            attribute.ClearField(field)
            if field == "floats":
                attribute.type = attribute.TENSOR
                attribute.t.data_type, attribute.t.dims[:] = onnx.TensorProto.FLOAT, [count]


def stored_tensors(graph: onnx.GraphProto) -> Iterator[tuple[int, Shape]]:
    """Element type and shape of each tensor that a file stores: all are loaded, read or not.

    These are initializers and constants at any depth, and what operators outside the standard have
    as attributes: tensors, and lists of floats such as the coefficients of a regression. A constant
    of one value at a stored shape stands for a weight where an operator reads it as one.
    """
    sizes = {tensor.name: tensor for tensor in graph.initializer}
    weighed = {name for node in graph.node if node.op_type in _WEIGHED for name in node.input}
    yield from ((tensor.data_type, tuple(tensor.dims)) for tensor in graph.initializer)
    for sparse in graph.sparse_initializer:
        yield sparse.values.data_type, tuple(sparse.dims)
    for node in graph.node:
        own = node.op_type == "Constant" or node.domain not in STANDARD
        if node.op_type == "ConstantOfShape" and weighed.intersection(node.output):
            size = sizes.get(next(iter(node.input), ""))
            value = None if size is None else constant_of(size).value
            if value is not None and value.dtype.kind == "i":
                yield onnx.TensorProto.FLOAT, tuple(value.ravel().tolist())
        for attribute in node.attribute:
            for body in _bodies(attribute):
                yield from stored_tensors(body)
            if own:
                yield from ((one.data_type, tuple(one.dims)) for one in _tensors(attribute))
                if attribute.floats:
                    yield onnx.TensorProto.FLOAT, (len(attribute.floats),)


def _bodies(attribute: onnx.AttributeProto) -> list[onnx.GraphProto]:
    return [*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs]


def _tensors(attribute: onnx.AttributeProto) -> list[onnx.TensorProto]:
    return [*([attribute.t] if attribute.HasField("t") else ()), *attribute.tensors]


def _inlined(model: onnx.ModelProto, where: str) -> onnx.ModelProto:
    """Local functions replaced by their bodies, after a check of the resulting size."""
    bodies = {(f.domain, f.name): f for f in model.functions}
    calls = {
        key: [(n.domain, n.op_type) for n in f.node if (n.domain, n.op_type) in bodies]
        for key, f in bodies.items()
    }
    try:
        order = list(TopologicalSorter(calls).static_order())
    except CycleError as error:
        raise UnreadableModel(where, "its functions call themselves.") from error
    size: dict[tuple[str, str], int] = {}
    for key in order:
        size[key] = len(bodies[key].node) + sum(size[c] for c in calls[key])
    total = sum(size.get((n.domain, n.op_type), 1) for n in model.graph.node)
    if total > MAX_NODES:
        raise ModelTooLarge(where, f"it has over {MAX_NODES:,} operators.")
    try:
        return inliner.inline_local_functions(model)
    except (RuntimeError, ValueError, DecodeError, onnx.checker.ValidationError) as error:
        raise UnreadableModel(where, "its functions cannot be inlined.") from error
