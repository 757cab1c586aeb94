"""From calls of ATen operators with shapes and strides to an operator graph.

The calls are those of `torch.export` before decomposition, so that what runs as one kernel (scaled
dot-product attention, layer norm) is one operator. Copies that eager torch makes implicitly, where
`reshape`, `matmul` or `linear` get a permuted tensor, are found from the strides. Names of
operators are those of `torch.ops.aten` without namespace, overload and trailing underscore, so that
`aten.add_.Tensor` and the `add` of a table are the same operator.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple

from forerun.data.facts import facts_of
from forerun.data.graph import Attribute, Operator, OperatorGraph, Shape
from forerun.features.graphs.dropout import ATTRIBUTE as DROPOUT
from forerun.features.readers.input_sizes import Probe


@dataclass(frozen=True, slots=True)
class Meta:
    """A tensor's metadata in a traced program.

    Attributes:
        shape: its sizes.
        strides: its strides in elements; None where not known.
        dtype: any value that is equal for equal types.
        floating: whether it holds floating-point numbers.
    """

    shape: Shape
    strides: Shape | None = None
    dtype: object = None
    floating: bool = True


def is_viewable(meta: Meta, shape: Shape) -> bool:
    """Whether a tensor can be viewed in another shape without a copy, as `Tensor.view` decides.

    Args:
        meta: shape and strides of the tensor; without strides it is taken as contiguous.
        shape: the new shape, of as many elements.
    """
    if meta.strides is None or prod(meta.shape) <= 1 or prod(shape) != prod(meta.shape):
        return True
    runs = _runs(meta)
    sizes = [d for d in reversed(shape) if d != 1]
    for length in runs:
        filled = 1
        while sizes and filled < length:
            filled *= sizes.pop(0)
        if filled != length:
            return False
    return True


def _runs(meta: Meta) -> list[int]:
    """Lengths of the stretches with uniform strides, innermost first."""
    runs: list[int] = []
    expected: int | None = None
    for size, stride in zip(reversed(meta.shape), reversed(meta.strides or ()), strict=True):
        if size == 1:
            continue
        if expected is not None and stride == expected:
            runs[-1] *= size
        else:
            runs.append(size)
        expected = stride * size
    return runs


_NAMES = facts_of(__file__)
VIEWS = frozenset(_NAMES["views"])
"""Operators that move no data in inference: their readers are linked to what they view."""
FACTORIES = frozenset(_NAMES["factories"])
"""Operators that create a constant: they have no input and no work that depends on the query."""
KIND_OF: Mapping[str, str] = {
    name: kind for kind, names in _NAMES["kinds"].items() for name in names
}

DROPOUTS = frozenset({"dropout", "feature_dropout", "alpha_dropout", "native_dropout"})
"""Operators among these that drop activations in training."""


def plain_name(name: str) -> str:
    """`aten.add_.Tensor`, `aten::add_` or `add_` -> `add`."""
    last = name.rsplit("::", 1)[-1]
    parts = last.split(".")
    base = parts[1] if len(parts) > 1 and parts[0] in ("aten", "prims") else parts[0]
    return base[:-1] if base.endswith("_") and not base.endswith("__") else base


def operator_name(target: str) -> str:
    """The name of a call: `aten.add_.Tensor` -> `add`, `tv.nms.default` -> `tv::nms`."""
    library, _, rest = target.partition(".")
    if library in ("aten", "prims") or not rest:
        return plain_name(target)
    return f"{library}::{rest.partition('.')[0]}"


def function_of(plain: str) -> str:
    """The `function` attribute of an elementwise operator: `rsub` -> `sub`, `relu` -> `relu`."""
    return str(_NAMES["functions"].get(plain, plain))


CASTS = ("to", "_to_copy", "type_as")
"""Conversions of the number format, which move no data where the format is the same."""


class Ref(NamedTuple):
    """The name of a tensor in an argument list."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an operator.

    Attributes:
        name: plain ATen name, as `plain_name` gives it; `library::name` of other operators.
        arguments: arguments by name in the operator's schema; tensors as `Ref` or lists of them.
        outputs: names of its results.
    """

    name: str
    arguments: Mapping[str, Any]
    outputs: tuple[str, ...]

    def tensors(self) -> list[str]:
        """Names of all tensor arguments in order."""
        found: list[str] = []
        for value in self.arguments.values():
            items = (
                value
                if isinstance(value, list | tuple) and not isinstance(value, Ref)
                else (value,)
            )
            found.extend(item.name for item in items if isinstance(item, Ref))
        return found


class AtenGraph:
    """Collects operators call by call.

    Args:
        tensors: shapes of every tensor of the program by name.
        weights: names of parameters, buffers and constants.
        probe: finds the tensors that grow with the batch, where the batch was free.
        marks: whether operators get attributes that the memory plan needs and a traced program does
            not show: the dropout probability of their results, and whether attention is causal.
    """

    def __init__(
        self,
        tensors: Mapping[str, Meta],
        weights: Mapping[str, int],
        probe: Probe,
        *,
        marks: bool = False,
    ) -> None:
        self.marks = marks
        self.tensors = dict(tensors)
        self._constant = set(weights)
        self._weights = dict(weights)
        self._probe = probe
        self._producers: dict[str, tuple[int, ...]] = {}
        self._operators: list[Operator] = []

    def alias(self, name: str, source: str) -> None:
        """`name` is another name of `source`."""
        if source in self.tensors:
            self.tensors[name] = self.tensors[source]
        self._producers[name] = self._producers.get(source, ())
        if source in self._constant:
            self._constant.add(name)

    def graph(self, source: str, batch_size: int) -> OperatorGraph:
        """The collected graph, at `batch_size` where the batch was free."""
        operators = tuple(self._probe.at(op, batch_size) for op in self._operators)
        total = sum(self._weights.values())
        return OperatorGraph(operators, batch_size, False, source, total)

    def add(self, call: Call) -> None:
        """Add one call."""
        names = call.tensors()
        constant = all(n in self._constant for n in names)
        if call.name in FACTORIES or (constant and not self._grows_any(call.outputs)):
            # Made without inputs or from weights alone: computed once, independent of the batch.
            self._constant.update(call.outputs)
        sources = self._sources(names)
        if call.name in FACTORIES or self._looks_only(call):
            self._look(call, names, sources)
            return
        for made in _made(call, self):
            grows = self._grows_any((*call.outputs, *names))
            self._operators.append(replace(made, inputs=sources, batched=grows))
            sources = (len(self._operators) - 1,)
        for output in call.outputs:
            self._producers[output] = sources

    def meta(self, argument: Any) -> Meta | None:
        """Shape and strides of a tensor argument; None where it is left out."""
        return self.tensors.get(argument.name) if isinstance(argument, Ref) else None

    def grows(self, name: str) -> bool:
        """Whether a tensor grows with the batch."""
        meta = self.tensors.get(name)
        if self._probe.active and meta is not None:
            return self._probe.holds_batch(meta.shape)
        return name not in self._constant

    def operator(self, kind: str, call: Call, **changes: Any) -> Operator:
        """An operator of the call's operands, with some fields changed."""
        names = call.tensors()
        known = [(n, self.tensors[n]) for n in names if n in self.tensors]
        fields: dict[str, Any] = {
            "input_shapes": tuple(m.shape for n, m in known if self.grows(n) and 0 not in m.shape),
            "output_shapes": tuple(
                self.tensors[n].shape
                for n in call.outputs[:1]
                if n in self.tensors and 0 not in self.tensors[n].shape
            ),
            "parameter_elements": sum(
                prod(m.shape) for n, m in known if not self.grows(n) and m.floating and m.shape
            ),
        }
        library = "" if "::" in call.name else "aten."
        return Operator(kind, library + call.name, **(fields | changes))

    def _grows_any(self, names: Sequence[str]) -> bool:
        return any(self.grows(n) for n in names if n in self.tensors)

    def _sources(self, names: Sequence[str]) -> tuple[int, ...]:
        return tuple(sorted({p for n in names for p in self._producers.get(n, ())}))

    def _looks_only(self, call: Call) -> bool:
        """Whether a call moves no data: a view, or a reshape that the strides permit."""
        if call.name in (*CASTS, "reshape", "flatten", "contiguous", "unflatten"):
            return not self._copies(call)
        return call.name in VIEWS or not call.outputs

    def _copies(self, call: Call) -> bool:
        names = call.tensors()
        before = self.tensors.get(names[0]) if names else None
        after = self.tensors.get(call.outputs[0]) if call.outputs else None
        if before is None or after is None:
            return call.name == "_to_copy"
        if call.name in CASTS:
            return before.dtype != after.dtype
        if call.name == "contiguous":
            return not is_viewable(before, (prod(before.shape),))
        return not is_viewable(before, after.shape)

    def _look(self, call: Call, names: Sequence[str], sources: tuple[int, ...]) -> None:
        drops = self.marks and call.name in DROPOUTS
        probability = call.arguments.get("p") if drops else None
        if sources and isinstance(probability, float) and probability > 0.0:
            # Traced in evaluation mode: an attribute holds the probability of dropout.
            op = self._operators[sources[-1]]
            marked = {**op.attributes, DROPOUT: probability}
            self._operators[sources[-1]] = replace(op, attributes=marked)
        constant = bool(names) and all(n in self._constant for n in names)
        for output in call.outputs:
            self._producers[output] = sources
            if constant:
                self._constant.add(output)


def _made(call: Call, graph: AtenGraph) -> list[Operator]:
    """The operators of a call that does work."""
    kind = KIND_OF.get(call.name, "unknown")
    moves = ("reshape", "flatten", "contiguous", "to", "unflatten", "einsum")
    if call.name in moves and len(call.tensors()) == 1:
        kind = "copy"
    known = [graph.tensors.get(n) for n in (*call.tensors(), *call.outputs[:1])]
    if kind == "unknown" or any(m is None for m in known):
        return [graph.operator("unknown", call)]
    try:
        if call.name == "torchvision::deform_conv2d":
            return _deformable(call, graph)
        return _MAKERS[kind](call, graph) if kind in _MAKERS else [graph.operator(kind, call)]
    except (IndexError, KeyError, ValueError, ZeroDivisionError, AttributeError, TypeError):
        return [graph.operator("unknown", call)]


def _numbers(value: Any, rank: int) -> tuple[int, ...]:
    numbers = tuple(value) if isinstance(value, list | tuple) else (value,)
    return tuple(int(v) for v in (numbers * rank if len(numbers) == 1 else numbers))


def _conv(call: Call, graph: AtenGraph) -> list[Operator]:
    source, weight = _metas(call, graph, "input", "weight")
    kernel = weight.shape[2:]
    rank = len(kernel)
    arguments = call.arguments
    transposed = "transpose" in call.name or arguments.get("transposed") is True
    padding = arguments.get("padding", 0)
    attributes: dict[str, Attribute] = {
        "kernel": kernel,
        "stride": _numbers(arguments.get("stride") or 1, rank),
        "padding": (
            tuple(k // 2 if padding == "same" else 0 for k in kernel)
            if isinstance(padding, str)
            else _numbers(padding, rank)
        ),
        "groups": int(arguments.get("groups", 1)),
    }
    dilation = _numbers(arguments.get("dilation") or 1, rank)
    if any(d != 1 for d in dilation):
        attributes["dilation"] = dilation
    return [
        graph.operator(
            "conv_transpose" if transposed else "conv",
            call,
            input_shapes=(source.shape,),
            attributes=attributes,
        )
    ]


def _deformable(call: Call, graph: AtenGraph) -> list[Operator]:
    """`torchvision::deform_conv2d`, whose sizes are arguments one by one, as a convolution."""
    given = call.arguments
    pairs = {
        name: (given[f"{short}_h"], given[f"{short}_w"])
        for name, short in (("stride", "stride"), ("padding", "pad"), ("dilation", "dilation"))
    }
    return _conv(replace(call, arguments={**given, **pairs}), graph)


def _linear(call: Call, graph: AtenGraph) -> list[Operator]:
    left, right = ("mat1", "mat2") if call.name == "addmm" else ("input", "weight")
    source, _ = _metas(call, graph, left, right)
    if graph.grows(call.arguments[right].name):
        return _matmul(call, graph, left, right)
    width = source.shape[-1]
    flat = (prod(source.shape) // width, width)
    made = graph.operator("linear", call, input_shapes=(source.shape,))
    return [*_copied(source, flat), made]


def _matmul(
    call: Call, graph: AtenGraph, left: str | None = None, right: str | None = None
) -> list[Operator]:
    names = [r.name for r in call.arguments.values() if isinstance(r, Ref)]
    if left and right:
        names = [call.arguments[left].name, call.arguments[right].name]
    first, second = names[-2:]
    a, b, out = (graph.tensors[n] for n in (first, second, call.outputs[0]))
    if len(a.shape) < 2 or len(b.shape) < 2:
        k = a.shape[-1]
        shapes = ((prod(a.shape) // k, k), (k, prod(b.shape) // k))
        result = (prod(out.shape[:-1]) if len(a.shape) > 1 else 1, shapes[1][1])
        return [graph.operator("matmul", call, input_shapes=shapes, output_shapes=(result,))]
    if not graph.grows(second) and len(b.shape) == 2:
        return [graph.operator("linear", call, input_shapes=(a.shape,))]
    copies = [
        copy
        for m in (a, b)
        if call.name == "matmul" and len(m.shape) > 3
        for copy in _copied(m, (prod(m.shape[:-2]), *m.shape[-2:]))
    ]
    kept = (a.shape, *((b.shape,) if graph.grows(second) else ()))
    return [*copies, graph.operator("matmul", call, input_shapes=kept)]


def _copied(meta: Meta, shape: Shape) -> list[Operator]:
    """The copy that eager torch makes of an operand whose layout a product cannot read."""
    if is_viewable(meta, shape):
        return []
    return [Operator("copy", "aten.clone", (meta.shape,), (meta.shape,))]


def _attention(call: Call, graph: AtenGraph) -> list[Operator]:
    query, key, value = _metas(call, graph, "query", "key", "value")
    attributes: dict[str, Attribute] = {"function": "scaled_dot_product_attention"}
    if graph.marks and call.arguments.get("is_causal") is True:
        attributes["causal"] = 1
    shapes = (query.shape, key.shape, value.shape)
    return [graph.operator("attention", call, input_shapes=shapes, attributes=attributes)]


def _recurrent(call: Call, graph: AtenGraph) -> list[Operator]:
    """A recurrent layer: its input and its first state (layers and directions, batch, width)."""
    state = call.arguments["hx"]
    hidden = graph.meta(state if isinstance(state, Ref) else state[0])
    (source,) = _metas(call, graph, "input")
    weights = [graph.tensors[name.name] for name in call.arguments["params"]]
    return [
        graph.operator(
            "recurrent",
            call,
            input_shapes=(source.shape, *([hidden.shape] if hidden else [])),
            parameter_elements=sum(prod(weight.shape) for weight in weights),
        )
    ]


def _rows(call: Call, graph: AtenGraph) -> list[Operator]:
    """Normalisations, softmax and reductions, with the number of elements of each result."""
    kind = KIND_OF[call.name]
    source = graph.tensors[call.tensors()[0]]
    out = graph.tensors[call.outputs[0]]
    total = prod(source.shape)
    if kind == "reduce":
        width = total // max(1, prod(out.shape))
    elif kind == "softmax":
        width = source.shape[int(call.arguments.get("dim", -1))] if source.shape else 1
    elif kind == "layer_norm":
        width = prod(_numbers(call.arguments["normalized_shape"], 1))
    else:
        channels = source.shape[1] if len(source.shape) > 1 else 1
        groups = call.arguments.get("num_groups", call.arguments.get("group", channels))
        width = prod(source.shape[1:]) // max(1, int(groups))
    return [graph.operator(kind, call, attributes={"width": max(1, width)})]


def _pool(call: Call, graph: AtenGraph) -> list[Operator]:
    source, out = graph.tensors[call.tensors()[0]], graph.tensors[call.outputs[0]]
    if "adaptive_avg" in call.name and set(out.shape[2:]) == {1}:
        # Torch computes this one as a mean.
        width = max(1, prod(source.shape[2:]))
        return [graph.operator("reduce", call, attributes={"width": width})]
    kernel = call.arguments.get("kernel_size")
    if kernel is None:
        return [graph.operator("pool", call)]
    rank = len(out.shape) - 2
    attributes: dict[str, Attribute] = {
        "kernel": _numbers(kernel, rank),
        "stride": _numbers(call.arguments.get("stride") or kernel, rank),
    }
    return [graph.operator("pool", call, attributes=attributes)]


def _elementwise(call: Call, graph: AtenGraph) -> list[Operator]:
    attributes = {"function": function_of(call.name)}
    return [graph.operator("elementwise", call, attributes=attributes)]


def _metas(call: Call, graph: AtenGraph, *names: str) -> list[Meta]:
    return [graph.tensors[call.arguments[name].name] for name in names]


_MAKERS: Mapping[str, Callable[[Call, AtenGraph], list[Operator]]] = {
    "conv": _conv,
    "conv_transpose": _conv,
    "linear": _linear,
    "matmul": _matmul,
    "attention": _attention,
    "recurrent": _recurrent,
    "softmax": _rows,
    "layer_norm": _rows,
    "group_norm": _rows,
    "reduce": _rows,
    "pool": _pool,
    "elementwise": _elementwise,
}
