"""Recomposes operators that files store as chains but frameworks run as one kernel or none.

Exporters decompose GELU, SiLU, layer norm, biased products and attention where the operator set
lacks them. They also write as operators what torch treats as views: splits, slices, broadcasts,
type changes, and transpositions that a product reads in place. A batch norm folded into its
convolution cannot be recovered, so such a graph has one kernel less per layer than eager torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from forerun.data.graph import Operator, OperatorGraph
from forerun.features.caches import GraphKey, kept_by_graph
from forerun.features.deadline import check, watched
from forerun.features.operators.fusion import fuse_attention

_VIEWS = frozenset({"Slice", "Split", "Expand", "Cast", "CastLike"})
_PICKS = "Gather"
_GATES: Mapping[str, str] = {"sigmoid": "silu", "hardsigmoid": "hardswish"}


class _Graph(NamedTuple):
    ops: Sequence[Operator]
    readers: Sequence[Sequence[int]]

    def is_function(self, i: int, *functions: str) -> bool:
        op = self.ops[i]
        return op.kind == "elementwise" and op.attributes.get("function") in functions

    def only_reader(self, i: int, *functions: str) -> int | None:
        """The only operator that reads it, if that is one of these functions; else None."""
        readers = self.readers[i]
        found = readers[0] if len(readers) == 1 else None
        return found if found is not None and self.is_function(found, *functions) else None


class _Idiom(NamedTuple):
    last: int
    operator: Operator
    inner: frozenset[int]


def recomposed(graph: OperatorGraph) -> OperatorGraph:
    """The graph with each chain as one operator and without views; the argument is unchanged."""
    return _recomposed(GraphKey(graph))


@kept_by_graph()
def _recomposed(key: GraphKey) -> OperatorGraph:
    graph = key.graph
    seen = _of(graph.operators)
    found: list[_Idiom] = []
    taken: set[int] = set()
    for i in watched(range(len(seen.ops))):
        for match in (_gelu, _gate, _layer_norm, _biased):
            idiom = match(seen, i)
            if idiom is not None and not taken & (idiom.inner | {idiom.last}):
                found.append(idiom)
                taken |= idiom.inner | {idiom.last}
    inner = set().union(*(idiom.inner for idiom in found))
    graph = _rewritten(graph, {idiom.last: idiom.operator for idiom in found}, inner)
    return _without_views(fuse_attention(graph))


def tidied_table(graph: OperatorGraph, fused_rms_norm: bool) -> OperatorGraph:
    """Recompose operators in a graph of the timm benchmark's tables that its tracer decomposed.

    The tracer writes the bias of a dense layer as a separate addition where the input is a
    transposed view, and root-mean-square norms as chains.

    Args:
        graph: graph from the table; it is not changed.
        fused_rms_norm: whether the runtime has one kernel for a root-mean-square norm over the
            last dimension (torch since 2.9, measured on the benchmark's own rows).
    """
    seen = _of(graph.operators)
    found: list[_Idiom] = []
    for i in watched(range(len(seen.ops))):
        idiom = _biased(seen, i)
        if idiom is None and fused_rms_norm:
            idiom = _rms_norm(seen, i)
        if idiom is not None:
            found.append(idiom)
    if not found:
        return graph
    inner = set().union(*(idiom.inner for idiom in found))
    return _rewritten(graph, {idiom.last: idiom.operator for idiom in found}, inner)


def _of(ops: Sequence[Operator]) -> _Graph:
    readers: list[list[int]] = [[] for _ in ops]
    for i, op in enumerate(ops):
        for j in op.inputs:
            readers[j].append(i)
    return _Graph(ops, readers)


def _gelu(graph: _Graph, i: int) -> _Idiom | None:
    """GELU: x / sqrt 2, erf, plus 1, times x, times 1/2 (last, or on x)."""
    if not graph.is_function(i, "erf") or len(graph.ops[i].inputs) != 1:
        return None
    scale = graph.ops[i].inputs[0]
    plus = graph.only_reader(i, "add")
    times = None if plus is None else graph.only_reader(plus, "mul")
    if plus is None or times is None or not graph.is_function(scale, "mul", "div"):
        return None
    if len(graph.ops[scale].inputs) != 1 or len(graph.readers[scale]) != 1:
        return None
    source = graph.ops[scale].inputs[0]
    inner = {scale, i, plus}
    others = [j for j in graph.ops[times].inputs if j != plus]
    halved = [j for j in others if graph.is_function(j, "mul") and graph.only_reader(j, "mul")]
    if halved and graph.ops[halved[0]].inputs == (source,):
        inner.add(halved[0])
        return _one("gelu", graph, times, source, inner)
    half = graph.only_reader(times, "mul")
    if others != [source] or half is None or len(graph.ops[half].input_shapes) != 1:
        return _one("gelu", graph, times, source, inner) if others == [source] else None
    return _one("gelu", graph, half, source, inner | {times})


def _gate(graph: _Graph, i: int) -> _Idiom | None:
    """A tensor times a sigmoid of itself, such as SiLU."""
    if not graph.is_function(i, *_GATES) or len(graph.ops[i].inputs) != 1:
        return None
    source, times = graph.ops[i].inputs[0], graph.only_reader(i, "mul")
    if times is None or set(graph.ops[times].inputs) != {source, i}:
        return None
    name = _GATES[str(graph.ops[i].attributes["function"])]
    return _one(name, graph, times, source, {i})


def _layer_norm(graph: _Graph, i: int) -> _Idiom | None:
    """Layer norm: x minus its mean, over the root of the mean square plus epsilon, scale, shift."""
    source, minus = graph.ops[i].inputs, graph.only_reader(i, "sub")
    if graph.ops[i].kind != "reduce" or minus is None:
        return None
    # The network's own input has no producer.
    if not set(source) <= set(graph.ops[minus].inputs) or len(graph.ops[minus].input_shapes) != 2:
        return None
    inner = {i, minus}
    last = _deviation(graph, minus, inner)
    if last is None:
        return None
    weights = 0
    for function in ("mul", "add"):
        after = graph.only_reader(last, function)
        if after is None or not graph.ops[after].parameter_elements:
            break
        inner.add(last)
        last, weights = after, weights + graph.ops[after].parameter_elements
    shape = graph.ops[last].output_shapes
    means = prod(graph.ops[i].output_shapes[0]) if graph.ops[i].output_shapes else 1
    made = replace(
        graph.ops[last],
        kind="layer_norm",
        name="LayerNormalization",
        input_shapes=shape,
        parameter_elements=weights,
        attributes={"width": max(1, sum(map(prod, shape)) // max(1, means))},
        inputs=source,
    )
    return _Idiom(last, made, frozenset(inner))


def _rms_norm(graph: _Graph, i: int) -> _Idiom | None:
    """RMS norm: square, mean over the last dimension, plus epsilon, root, times x, times scale."""
    op = graph.ops[i]
    if not graph.is_function(i, "pow") or len(op.inputs) != 1 or not op.output_shapes:
        return None
    shape = op.output_shapes[0]
    inner, at = {i}, i
    for step in ("reduce", "add", "rsqrt", "mul"):
        readers = graph.readers[at]
        if len(readers) != 1:
            return None
        after = readers[0]
        if not (graph.ops[after].kind == step or graph.is_function(after, step)):
            return None
        if step == "reduce" and graph.ops[after].output_shapes != ((*shape[:-1], 1),):
            return None
        inner.add(after)
        at = after
    source = op.inputs
    if not set(source) <= set(graph.ops[at].inputs):
        return None
    scaled = graph.only_reader(at, "mul")
    weights = graph.ops[scaled].parameter_elements if scaled is not None else 0
    last = scaled if scaled is not None and weights == shape[-1] else at
    made = replace(
        graph.ops[last],
        kind="layer_norm",
        name="aten.rms_norm",
        input_shapes=(shape,),
        parameter_elements=weights if last == scaled else 0,
        attributes={"width": max(1, shape[-1])},
        inputs=source,
    )
    return _Idiom(last, made, frozenset(inner - {last}))


def _biased(graph: _Graph, i: int) -> _Idiom | None:
    """A product with a weight, and its bias."""
    op, plus = graph.ops[i], graph.only_reader(i, "add")
    if op.kind != "linear" or plus is None or len(graph.ops[plus].input_shapes) != 1:
        return None
    bias, shapes = graph.ops[plus].parameter_elements, op.output_shapes
    if not bias or not shapes or bias != shapes[0][-1]:
        return None
    made = replace(op, parameter_elements=op.parameter_elements + bias)
    return _Idiom(plus, made, frozenset({i}))


def _deviation(graph: _Graph, minus: int, inner: set[int]) -> int | None:
    """Position of a centred tensor over its standard deviation; `inner` collects the steps."""
    at = next((j for j in graph.readers[minus] if graph.is_function(j, "pow", "mul")), None)
    for step in ("reduce", "add", "sqrt", "div"):
        if at is None or len(graph.readers[at]) != 1:
            return None
        inner.add(at)
        at = graph.readers[at][0]
        if not (graph.ops[at].kind == step or graph.is_function(at, step)):
            return None
    return at if at is not None and minus in graph.ops[at].inputs else None


def _one(function: str, graph: _Graph, last: int, source: int, inner: set[int]) -> _Idiom:
    op = graph.ops[last]
    made = replace(
        op,
        input_shapes=op.output_shapes,
        parameter_elements=0,
        attributes={"function": function},
        inputs=(source,),
    )
    return _Idiom(last, made, frozenset(inner))


def _without_views(graph: OperatorGraph) -> OperatorGraph:
    seen = _of(graph.operators)
    views: set[int] = set()
    for i in watched(range(len(seen.ops) - 1, -1, -1)):
        op, readers = seen.ops[i], seen.readers[i]
        strided = [j in views or seen.ops[j].kind in ("matmul", "attention") for j in readers]
        read_in_place = op.name in ("Transpose", _PICKS) and bool(readers) and all(strided)
        if op.kind == "copy" and op.inputs and (op.name in _VIEWS or read_in_place):
            views.add(i)
    return _rewritten(graph, {}, views)


def _rewritten(
    graph: OperatorGraph, made: Mapping[int, Operator], dropped: set[int]
) -> OperatorGraph:
    """The graph with some operators replaced and others removed; their readers are reconnected."""
    kept: list[Operator] = []
    where: list[tuple[int, ...]] = []
    for i, op in enumerate(graph.operators):
        check()
        chosen = made.get(i, op)
        inputs = tuple(dict.fromkeys(p for j in chosen.inputs for p in where[j]))
        if i in dropped:
            where.append(inputs)
            continue
        where.append((len(kept),))
        kept.append(chosen if inputs == chosen.inputs else replace(chosen, inputs=inputs))
    return replace(graph, operators=tuple(kept))
