"""Operator graphs from ONNX files, by shape inference of the onnx package.

Weights are never read, only their shapes. Free dimensions are bound as `Binding` says.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from forerun.data.errors import ModelTooLarge, UnreadableModel
from forerun.data.graph import Operator, OperatorGraph, Shape, bits_of
from forerun.features.deadline import check, watched
from forerun.features.readers.input_sizes import PROBE_BATCH, InputSizes, Probe
from forerun.features.readers.onnx_graph.control_flow import ControlFlow
from forerun.features.readers.onnx_graph.file import (
    FORMATS,
    MAX_NODES,
    check_dimensions,
    opsets,
    ordered,
    parse,
    stored_tensors,
)
from forerun.features.readers.onnx_graph.operators import Node, is_weight, operators_of
from forerun.features.readers.onnx_graph.shapes import (
    SIZES,
    VIEWS,
    Binding,
    Shapes,
    constant_of,
)
from forerun.features.readers.onnx_graph.tensor import Tensor

MAX_INFERRED = 2 * MAX_NODES
"""Nodes whose shapes are inferred, each run of a loop's body anew."""
_USES_PAST = "use_cache_branch"
"""Input of exported decoders that chooses the branch which reads a key-value cache; ours is empty,
so it is false."""
_PROTOBUF_IR_VERSION = 0x08
"""First byte of an ONNX file: the tag of field 1, the IR version."""


class OnnxReader:
    """Reads `.onnx` files."""

    def accepts(self, path: Path | None, head: bytes) -> bool:
        """Whether it is ONNX: by suffix, or by the first byte where there is no name."""
        if path is not None:
            return path.suffix.lower() == ".onnx"
        return head[:1] == bytes([_PROTOBUF_IR_VERSION])

    def read(self, source: Path | bytes, sizes: InputSizes) -> OperatorGraph:
        """The graph of an ONNX model.

        Where the batch is a free dimension, the graph is traced at `sizes.batch_size`; where the
        file fixes it, `graph.batch_size` says at what.

        Args:
            source: file or its contents.
            sizes: sizes of free dimensions.

        Raises:
            BadShape: a given shape contradicts the model's inputs.
            UnreadableModel, ModelTooLarge: the file is not a valid ONNX model.
        """
        where = source.name if isinstance(source, Path) else "the ONNX model"
        model = parse(source, where)
        inputs = graph_inputs(model.graph, where)
        probe = _Walk(model, Binding(sizes, PROBE_BATCH, inputs, where), where)
        if probe.binding.batch_is_free:
            probe.run()
            if probe.sound:
                return probe.graph(sizes.batch_size)
            # Some exporters leave the batch free at the inputs and fix it inside.
            walk = _Walk(model, Binding(sizes, 1, inputs, where), where)
            walk.run()
            return walk.graph(1)
        probe.run()
        return probe.graph(probe.fixed_batch())


def graph_inputs(graph: onnx.GraphProto, where: str) -> dict[str, list[Any]]:
    """Name of an input that is no weight -> its dimensions.

    Raises:
        UnreadableModel: an input is not a tensor, or has no shape.
    """
    weights = {tensor.name for tensor in graph.initializer}
    weights |= {tensor.values.name for tensor in graph.sparse_initializer}
    found: dict[str, list[Any]] = {}
    for entry in graph.input:
        if entry.name in weights:
            continue
        if not entry.type.HasField("tensor_type") or not entry.type.tensor_type.HasField("shape"):
            raise UnreadableModel(where, f"input {entry.name!r} has no shape; export it with one.")
        found[entry.name] = list(entry.type.tensor_type.shape.dim)
    return found


class _Walk:
    """One pass over the nodes in order, collecting shapes and operators."""

    def __init__(self, model: onnx.ModelProto, binding: Binding, where: str) -> None:
        graph = model.graph
        self.binding, self._where, self._graph = binding, where, graph
        declared = {v.name: v for v in (*graph.output, *graph.value_info)}
        self._shapes = Shapes(opsets(model), binding, declared)
        standard = ("", "ai.onnx")
        self._opset = max(
            (o.version for o in model.opset_import if o.domain in standard), default=1
        )
        self._operators: list[Operator] = []
        self._first_unknown: str | None = None
        self._unknown_shapes = 0
        self._first: Shape = (1,)
        self._take_weights(graph)
        self._take_inputs(graph)
        self._probe = Probe(binding.batch_is_free and binding.batch == PROBE_BATCH)
        self._control_flow = ControlFlow(
            self._shapes, self._operators, self._take_weights, self._visit_body
        )
        self._nodes = ordered(graph.node, self._shapes.tensors, where)

    @property
    def sound(self) -> bool:
        """Whether the shape of every operator is known."""
        return self._first_unknown is None

    def run(self) -> None:
        """Visit all nodes in order."""
        self._visit(self._nodes, 0)

    def fixed_batch(self) -> int:
        """The batch of a file that fixes it: that of its recurrent layers, or the first dimension.

        Recurrent layers may read (steps, batch, width).
        """
        recurrent = [op for op in self._operators if op.kind == "recurrent"]
        states = {shape[1] for op in recurrent for shape in op.input_shapes[1:2]}
        known = states.intersection(self._first)
        return known.pop() if len(known) == len(states) == 1 else self._first[0]

    def graph(self, batch_size: int) -> OperatorGraph:
        """The collected graph, at `batch_size` where the batch is free.

        Raises:
            UnreadableModel: no operator depends on the input, the shapes of most operators are not
                known, or a tensor is too large.
        """
        if not self._operators:
            raise UnreadableModel(
                self._where,
                "no operator in it takes time: all are views of its inputs, or depend on none.",
            )
        if 2 * self._unknown_shapes > len(self._operators):
            raise UnreadableModel(self._where, self._why_unknown())
        elements, stored = _stored(self._graph)
        made = [self._probe.at(op, batch_size) for op in watched(self._operators)]
        for op in watched(made):
            for shape in (*op.input_shapes, *op.output_shapes):
                check_dimensions(op.name, shape, self._where)
        return OperatorGraph(
            tuple(made),
            batch_size=batch_size,
            source="onnx",
            parameter_elements=elements,
            stored_bytes=stored,
            bound_dimensions=tuple(
                replace(bound, size=self._probe.size(bound.size, batch_size))
                for bound in self.binding.bound
            ),
            assumptions=tuple(dict.fromkeys([*self._control_flow.assumptions, *self._doubts()])),
        )

    def _why_unknown(self) -> str:
        start = f"shapes are not known from {self._first_unknown!r} on"
        if not self.binding.bound:
            return f"{start}; all inputs have fixed shapes, so they depend on the data."
        taken = [f"{b.input}[{b.axis}]={b.size}" for b in self.binding.bound if b.why != "batch"]
        with_sizes = f" with {', '.join(taken):.200}" if taken else ""
        return (
            f"{start}{with_sizes}; give the shapes of its inputs, or export it with fixed shapes."
        )

    def _doubts(self) -> Iterator[str]:
        """Operators that are newer than what is known, and shapes that do not follow."""
        newest = onnx.defs.onnx_opset_version()
        if self._opset > newest:
            yield (
                f"the file's operator set {self._opset} is newer than {newest}, the newest "
                "known; its operators may have changed"
            )
        if self._shapes.depend_on_data:
            yield (
                f"the number of results of {' and '.join(self._shapes.depend_on_data)} depends on "
                "the data; the most that is possible is taken"
            )
        if any(node.op_type == "QuantizeLinear" for node in self._graph.node):
            yield (
                "the file is quantised by QuantizeLinear: use precision int8 for how "
                "runtimes execute it; conversions are part of the matrix products"
            )
        if self._unknown_shapes:
            count, first = self._unknown_shapes, self._first_unknown
            yield (
                f"shapes of {count} operators, {first!r:.80} first, do not follow from those of "
                "the inputs, which may not fit the network; shapes can be given"
            )

    def _take_weights(self, graph: onnx.GraphProto) -> None:
        for tensor in watched(graph.initializer):
            # An empty initializer is how exporters write "left out".
            if any(d < 0 for d in tensor.dims) or prod(tensor.dims) > 2**53:
                check_dimensions(tensor.name, tensor.dims, self._where)
            self._shapes.tensors[tensor.name] = constant_of(tensor)
        for sparse in graph.sparse_initializer:
            name, shape = sparse.values.name, tuple(sparse.dims)
            check_dimensions(name, shape, self._where)
            self._shapes.tensors[name] = Tensor(sparse.values.data_type, shape, True)

    def _take_inputs(self, graph: onnx.GraphProto) -> None:
        types = {entry.name: entry.type.tensor_type.elem_type for entry in graph.input}
        first: Shape | None = None
        for name, shape in self.binding.shapes.items():
            if 0 not in shape:
                check_dimensions(name, shape, self._where)
            read = Tensor(types[name], shape)
            if name == _USES_PAST:
                read = read._replace(constant=True, value=np.zeros(shape, dtype=bool))
            self._shapes.tensors[name] = read
            first = shape if first is None and shape else first
        self._first = first or (1,)

    def _visit_body(self, body: onnx.GraphProto, depth: int) -> None:
        self._take_weights(body)
        self._visit(ordered(body.node, self._shapes.tensors, self._where, shadows=True), depth)

    def _visit(self, nodes: Iterable[onnx.NodeProto], depth: int) -> None:
        for node in nodes:
            check()
            if self._shapes.inferred > MAX_INFERRED:
                raise ModelTooLarge(
                    self._where,
                    f"its loops take over {MAX_INFERRED:,} steps to follow. Export it with fewer "
                    "runs of its loops, or the body of a loop as a model of its own.",
                )
            if self._control_flow.follows(node, depth):
                continue
            outputs = self._shapes.infer(node)
            self._check_known(node, outputs)
            producers = self._emit(node, outputs)
            for name, tensor in zip(node.output, outputs, strict=True):
                if name:
                    self._shapes.tensors[name] = tensor._replace(producers=producers)

    def _emit(self, node: onnx.NodeProto, outputs: list[Tensor]) -> tuple[int, ...]:
        """Add the operators of a node; returns the positions that its readers refer to."""
        inputs = [self._shapes[name] for name in node.input]
        if (outputs and all(t.constant for t in outputs)) or node.op_type in SIZES:
            return ()
        sources = tuple(sorted({p for t in inputs if t for p in t.producers}))
        if node.op_type in VIEWS or _moves_nothing(node, inputs, outputs):
            return sources
        wrapped = Node(node, _flat(inputs), _flat(outputs), self._grows)
        grown = any(self._grows(t) for t in (*outputs, *inputs) if t)
        for op in operators_of(wrapped):
            self._operators.append(replace(op, inputs=sources, batched=grown))
            sources = (len(self._operators) - 1,)
        return sources

    def _grows(self, tensor: Tensor) -> bool:
        """Whether a tensor grows with the batch: by its dimensions, or by its source."""
        if self._probe.active and tensor.shape is not None:
            return self._probe.holds_batch(tensor.shape)
        return not tensor.constant

    def _check_known(self, node: onnx.NodeProto, outputs: list[Tensor]) -> None:
        if outputs and outputs[0].shape is None and outputs[0].items is None:
            self._unknown_shapes += 1
            self._first_unknown = self._first_unknown or node.name or node.op_type


def _stored(graph: onnx.GraphProto) -> tuple[int, dict[str, int]]:
    """Elements of the weights of a file, read or not: all are loaded; and bytes by format."""
    elements, sizes = 0, Counter[str]()
    for elem_type, shape in watched(stored_tensors(graph)):
        size = max(0, prod(shape))
        elements += size * is_weight(elem_type, shape)
        if elem_type in FORMATS:
            number_format = FORMATS[elem_type]
            sizes[number_format] += -(-size * bits_of(number_format) // 8)
    return elements, dict(+sizes)


def _flat(tensors: Iterable[Tensor | None]) -> list[Any]:
    """The tensors, and in the place of sequences those that they hold."""
    known = (t.items if t is not None and t.items is not None else (t,) for t in tensors)
    return [tensor for group in known for tensor in group]


def _moves_nothing(
    node: onnx.NodeProto, inputs: list[Tensor | None], outputs: list[Tensor]
) -> bool:
    """Whether an `Expand`, `Cast` or `Tile` leaves its input unchanged."""
    if node.op_type not in ("Expand", "Cast", "CastLike", "Tile", "Pad"):
        return False
    if not inputs or not outputs:
        return False
    before, after = inputs[0], outputs[0]
    return (
        before is not None
        and after.shape is not None
        and (before.shape, before.elem_type) == (after.shape, after.elem_type)
    )
