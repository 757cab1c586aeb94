"""Lowers operator graphs to the nodes that onnxruntime runs on a CPU after its optimisations.

The rules follow the graphs that onnxruntime 1.31 writes (`optimized_model_filepath`). Normalisation
by running statistics and channel-wise scales are folded into the preceding convolution; so are
activations, and sums of two branches, where nothing else reads their inputs. GELU, SiLU and layer
normalisation written as elementary operators become one node. Convolutions work on images in
blocks of channels (NCHWc), with reordering nodes wherever an image passes between a convolution and
a node that cannot read blocks.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from forerun.data.graph import Operator, OperatorGraph
from forerun.features.deadline import watched
from forerun.features.processors.nodes import (
    BLOCK,
    CONV_KINDS,
    CpuNode,
    bytes_of,
    function_name,
    kind_of,
    node_of,
)

_FOLDED = frozenset("relu leaky_relu clamp sigmoid tanh hardsigmoid hardswish".split())
"""Functions that are folded into the preceding convolution."""


def cpu_nodes(graph: OperatorGraph) -> tuple[CpuNode, ...]:
    """The nodes that onnxruntime runs for a graph, including reordering nodes."""
    return _Lowering(graph.operators).nodes()


def owned_nodes(graph: OperatorGraph) -> tuple[tuple[CpuNode, ...], tuple[Operator, ...]]:
    """The nodes of `cpu_nodes`, and for each the operator of the graph that it is run for."""
    lowering = _Lowering(graph.operators)
    return lowering.nodes(), tuple(lowering.owners)


class _Lowering:
    """One in-order pass over the operators that folds operators and tracks layouts."""

    def __init__(self, operators: Sequence[Operator]) -> None:
        self._ops = list(operators)
        self._readers: dict[int, list[int]] = defaultdict(list)
        for place, op in enumerate(operators):
            for source in op.inputs:
                self._readers[source].append(place)
        self._stands_for: dict[int, int] = {}
        self._last_folded: dict[int, int] = {}
        self._blocked: set[int] = set()
        self._reordered: set[tuple[int, bool]] = set()
        self._finished: set[int] = set()
        self._written_out: dict[int, str] = {}
        self._dropped: set[int] = set()
        self._made: list[CpuNode] = []
        self.owners: list[Operator] = []

    def nodes(self) -> tuple[CpuNode, ...]:
        self._mark_patterns()
        for place, op in enumerate(watched(self._ops)):
            if place in self._dropped:
                continue
            if place in self._written_out:
                self._fused_function(place, op)
            elif not self._fold(place, op):
                self._emit(place, op)
        for place in range(len(self._ops)):
            if not self._readers[place] and place not in self._dropped:
                self._to_plain(self._source(place))
        return tuple(self._made)

    def _source(self, place: int) -> int:
        while place in self._stands_for:
            place = self._stands_for[place]
        return place

    def _inputs(self, op: Operator) -> list[int]:
        return list(dict.fromkeys(self._source(i) for i in op.inputs))

    # Functions written as elementary operators.

    def _mark_patterns(self) -> None:
        for place, op in enumerate(watched(self._ops)):
            function = function_name(op)
            if function == "erf":
                self._mark_gelu(place)
            elif function == "sigmoid":
                self._mark_silu(place)
            elif function == "pow" or (function == "mul" and op.name == "Pow"):
                self._mark_layer_norm(place)

    def _mark_gelu(self, place: int) -> None:
        """GELU: x / root 2, erf, + 1, times x, times a half, in either order of the last two."""
        chain, at = [place], place
        for _ in range(3):
            readers = self._readers[at]
            if len(readers) != 1 or function_name(self._ops[readers[0]]) not in ("add", "mul"):
                return
            at = readers[0]
            chain.append(at)
        before = [
            i for i in self._ops[place].inputs if function_name(self._ops[i]) in ("div", "mul")
        ]
        inner = [*before[:1], *chain[:-1]]
        roots = set(self._ops[before[0]].inputs) if before else set(self._ops[place].inputs)
        halves = [i for c in chain for i in self._ops[c].inputs if i not in inner]
        roots |= {i for i in halves if i not in chain}
        self._collapse(chain[-1], "erf", inner, tuple(roots))

    def _mark_silu(self, place: int) -> None:
        readers = self._readers[place]
        if len(readers) != 1 or function_name(self._ops[readers[0]]) != "mul":
            return
        product = self._ops[readers[0]]
        if set(self._ops[place].inputs) <= set(product.inputs) and self._ops[place].inputs:
            self._collapse(readers[0], "silu", [place], self._ops[place].inputs)

    def _mark_layer_norm(self, place: int) -> None:
        """Mean, difference, square, mean, + epsilon, root, quotient (and scale and shift)."""
        op = self._ops[place]
        if len(op.inputs) != 1 or function_name(self._ops[op.inputs[0]]) != "sub":
            return
        centred = op.inputs[0]
        inner, at = {centred, place}, place
        for wanted in ("reduce", "add", "sqrt"):
            readers = self._readers[at]
            if len(readers) != 1:
                return
            at = readers[0]
            if wanted not in (self._ops[at].kind, function_name(self._ops[at])):
                return
            inner.add(at)
        if len(self._readers[at]) != 1 or function_name(self._ops[self._readers[at][0]]) != "div":
            return
        last = self._readers[at][0]
        means = [i for i in self._ops[centred].inputs if self._ops[i].kind == "reduce"]
        for wanted in ("mul", "add"):
            readers = self._readers[last]
            reader = self._ops[readers[0]] if len(readers) == 1 else None
            if reader and function_name(reader) == wanted and len(reader.inputs) == 1:
                inner.add(last)
                last = readers[0]
        roots = tuple(i for i in self._ops[centred].inputs if i not in means)
        self._collapse(last, "layer_norm", [*inner, *means], roots)

    def _collapse(self, last: int, kind: str, inner: Sequence[int], roots: tuple[int, ...]) -> None:
        if last in self._dropped or self._dropped & set(inner):
            return
        self._dropped |= set(inner) - {last}
        self._written_out[last] = kind
        self._ops[last] = replace(self._ops[last], inputs=roots)

    def _fused_function(self, place: int, op: Operator) -> None:
        sources = self._inputs(op)
        stays = len(sources) == 1 and sources[0] in self._blocked
        if stays and self._written_out[place] == "silu":
            self._blocked.add(place)
        if place not in self._blocked:
            for source in sources:
                self._to_plain(source)
        size = bytes_of(op.output_shapes)
        values = size / 4
        kind = self._written_out[place].replace("silu", "exponential")
        self._add(CpuNode(kind, values, size, size, rows=values), op)

    # Folding into the preceding convolution.

    def _fold(self, place: int, op: Operator) -> bool:
        """Whether the operator is folded into the convolution that it reads."""
        sources = self._inputs(op)
        for source in reversed(sources):
            conv = self._ops[source]
            alone = self._holds_alone(source, place)
            if conv.kind != "conv" or not alone:
                continue
            unary = len(sources) == 1
            norm = op.kind == "batch_norm" or function_name(op) in ("mul", "add")
            open_ended = source not in self._finished
            if unary and norm and _channelwise(op) and open_ended:
                self._fold_into(source, place)
                return True
            if unary and function_name(op) in _FOLDED:
                self._fold_into(source, place)
                self._finished.add(source)
                return True
            joins = (
                function_name(op) == "add" and len(sources) == 2 and source not in self._finished
            )
            if joins and source in self._blocked and self._same_layout(sources, op):
                self._fold_into(source, place)
                self._read_branch(source, bytes_of(op.output_shapes))
                return True
        return False

    def _holds_alone(self, source: int, place: int) -> bool:
        """Whether `place` is the only reader of `source` and of all operators folded into it."""
        readers = self._readers[self._last_folded.get(source, source)]
        # Readers are sorted.
        return bool(readers) and readers[0] == readers[-1] == place

    def _fold_into(self, source: int, place: int) -> None:
        self._stands_for[place] = source
        self._last_folded[source] = place

    def _same_layout(self, sources: Sequence[int], op: Operator) -> bool:
        shapes = {self._shape(source) for source in sources}
        return all(source in self._blocked for source in sources) and len(shapes) == 1

    def _shape(self, place: int) -> tuple[int, ...]:
        shapes = self._ops[place].output_shapes
        return shapes[0] if shapes else ()

    def _read_branch(self, source: int, size: float) -> None:
        """Account for the other branch that a convolution with a folded sum reads."""
        self._add(CpuNode("add", size / 4, size, 0.0, rows=size / 4), self._ops[source])

    # Layouts.

    def _to_plain(self, source: int) -> None:
        if source in self._blocked and (source, True) not in self._reordered:
            self._reordered.add((source, True))
            self._reorder(self._ops[source].output_shapes, self._ops[source])

    def _to_blocks(self, source: int, op: Operator) -> None:
        if source not in self._blocked and (source, False) not in self._reordered:
            self._reordered.add((source, False))
            self._reorder(op.input_shapes[:1], op)

    def _reorder(self, shapes: Sequence[tuple[int, ...]], op: Operator) -> None:
        size = bytes_of(shapes)
        self._add(CpuNode("reorder", size / 4, size, size, rows=size / 4), op)

    # Single operators.

    def _emit(self, place: int, op: Operator) -> None:
        sources = self._inputs(op)
        kind = kind_of(op)
        if kind in CONV_KINDS:
            if kind == "conv_plain":
                for source in sources:
                    self._to_plain(source)
            else:
                self._blocked.add(place)
                if kind == "conv_first":
                    for source in sources:
                        self._to_plain(source)
                else:
                    self._to_blocks(sources[0] if sources else -1 - place, op)
        elif self._stays_blocked(op, kind, sources):
            self._blocked.add(place)
        else:
            for source in sources:
                self._to_plain(source)
        self._add(node_of(op, kind), op)

    def _stays_blocked(self, op: Operator, kind: str, sources: Sequence[int]) -> bool:
        if not sources or not all(source in self._blocked for source in sources):
            return False
        if kind == "concat":
            return all(shape[1] % BLOCK == 0 for shape in op.input_shapes if len(shape) > 1)
        if kind == "add":
            return len({self._shape(s) for s in sources}) == 1 and len(sources) == 2
        aligned = self._shape(sources[0])[1] % BLOCK == 0
        return (kind in ("pool", "mean") and aligned) or function_name(op) in (
            "relu",
            "sigmoid",
            "tanh",
        )

    def _add(self, node: CpuNode, op: Operator) -> None:
        self._made.append(replace(node, scales=op.batched, repeat=op.repeat))
        self.owners.append(op)


def _channelwise(op: Operator) -> bool:
    """Whether it scales or shifts channels by parameters, which can be folded into weights."""
    return op.kind == "batch_norm" or (len(op.input_shapes) == 1 and op.parameter_elements > 0)
