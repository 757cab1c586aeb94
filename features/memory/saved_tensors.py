"""Tensors that autograd saves for the backward pass of each operator, and results that are views.

Follows tools/autograd/derivatives.yaml of PyTorch. Activation functions are assumed not to work in
place, except `leaky_relu` and functions that save their result anyway.

torch.compile fuses pointwise operators, norms and copies into a few kernels. Its partitioner
(`min_cut_rematerialization_partition` of AOTAutograd) saves the inputs of such a kernel rather than
its intermediate results, and recomputes the rest in the backward pass. Results of matrix products,
attention, convolutions, reductions and sums of two branches are not recomputed. Operands of
products are written for the product anyway and are kept, as in eager mode. That choice fits the two
compiled rows of torchtune's table, whose activations are 8 times the width and 3 times the inner
width of a Llama block within 0.1 %.
"""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Final, NamedTuple

from forerun.data.graph import Operator, OperatorGraph
from forerun.features.deadline import check, watched

INDEX_BYTES = 8
STATISTIC_BYTES = 4
SCORE_BYTES = 4
SAFE_SOFTMAX_BYTES = 4
"""`aten._safe_softmax`, which attention products use from PyTorch 2.5 on, keeps softmax's result
and a selection from it; tables of decomposed attention were recorded that way."""
MASK_BYTES = 1
FUSED_DIMENSIONS = 4
FOLDED_ATTENTION = "fused.attention"
"""Attention recomposed by `forerun.features.operators.fusion` from a decomposed trace."""


class Saved(NamedTuple):
    """Tensors that an operator saves for the backward pass.

    Attributes:
        inputs: whether its activation operands are saved.
        output: whether its result is saved.
        extra_bytes: bytes of tensors created only for saving (statistics, positions).
        through: whether the gradient of the result passes unchanged to its operands.
        view: whether its result is a view of its operand, which needs no memory.
    """

    inputs: bool = False
    output: bool = False
    extra_bytes: int = 0
    through: bool = False
    view: bool = False


_RESULT = frozenset(
    "relu sigmoid tanh exp expm1 exp2 sqrt rsqrt reciprocal tan threshold leaky_relu".split()
)
_NOTHING = frozenset(
    "add sub neg rsub round floor ceil trunc sign eq ne lt le gt ge isnan isinf logical_and "
    "logical_or logical_not bitwise_not bitwise_and bitwise_or lerp quantize_per_tensor "
    "dequantize_per_tensor".split()
)
_THROUGH = frozenset({"add", "sub", "rsub"})
_PRODUCTS = frozenset({"mul", "div", "atan2", "maximum", "minimum", "fmod", "remainder"})
_COPIES = frozenset(
    "clone contiguous copy reshape flatten unflatten cat stack _to_copy to view_copy".split()
)
_LAYOUTS = frozenset({"aten.clone", "aten.flatten", "aten.reshape", "aten.contiguous"})
_SUMS = frozenset({"sum", "mean", "any", "all", "argmax", "argmin", "cumsum", "count_nonzero"})
_EXTREMES = frozenset({"amax", "amin", "norm", "linalg_vector_norm"})


def saved_tensors(graph: OperatorGraph, *, dropout: bool = True) -> tuple[Saved, ...]:
    """Tensors that each operator of a forward graph saves in training, in order.

    Args:
        graph: forward operators.
        dropout: whether dropout operators are active; otherwise their results are views.
    """
    unfused = frozenset(_unfused_attention(graph))
    views = frozenset(_views_around_attention(graph, unfused))
    if not dropout:
        views |= {
            place
            for place, op in enumerate(graph.operators)
            if op.attributes.get("function") == "dropout"
        }
    return tuple(
        Saved(through=True, view=True)
        if place in views
        else (_plain_attention(op) if place in unfused else saved(op))
        for place, op in enumerate(watched(graph.operators))
    )


def saved(op: Operator) -> Saved:
    """What one operator saves for the backward pass, regardless of its neighbours."""
    name = op.name.rpartition(".")[2]
    if op.kind == "elementwise":
        return _elementwise(op, str(op.attributes.get("function", name)))
    if op.kind in ("conv", "conv_transpose", "linear", "matmul", "unknown"):
        return Saved(inputs=True)
    if op.kind == "attention":
        # The flash and memory-efficient kernels keep one log-sum-exp per row of scores.
        rows = prod(op.input_shapes[0][:-1]) if op.input_shapes else 0
        return Saved(inputs=True, output=True, extra_bytes=rows * STATISTIC_BYTES)
    if op.kind == "softmax":
        return Saved(output=True)
    if op.kind in ("batch_norm", "layer_norm", "group_norm"):
        return Saved(inputs=True, extra_bytes=2 * _groups(op) * STATISTIC_BYTES)
    if op.kind == "pool":
        positions = _out_elements(op) * INDEX_BYTES if "max" in name else 0
        return Saved(inputs=True, extra_bytes=positions)
    if op.kind == "reduce":
        return Saved(inputs=name not in _SUMS, output=name in _EXTREMES)
    if op.kind == "recurrent":
        # cuDNN keeps the gates of every step.
        return Saved(inputs=True, output=True, extra_bytes=4 * _out_elements(op) * STATISTIC_BYTES)
    return Saved(through=name in _COPIES and len(op.inputs) < 2)


def kept_operands(
    op: Operator, differentiable: list[bool], *, trained: bool, weighed: bool
) -> list[int]:
    """Activation operands that an operator saves, among those of `saved`.

    A layer saves its operand for the gradient of its weights; a product saves each operand for the
    gradient of the other one.

    Args:
        op: the operator.
        differentiable: for each operand, whether it has a gradient.
        trained: whether the operator's weights have gradients.
        weighed: whether it has weights at all.
    """
    everything = list(range(len(differentiable)))
    if op.kind in ("linear", "conv", "conv_transpose"):
        return everything if trained or not weighed else []
    function = str(op.attributes.get("function", ""))
    if op.kind != "elementwise" or function not in _PRODUCTS:
        return everything
    if len(differentiable) > 1:
        return [i for i in everything if trained or any(_others(differentiable, i))]
    squared = len(op.input_shapes) > 1
    return everything if trained or squared or not differentiable else []


def _others(flags: list[bool], place: int) -> list[bool]:
    return flags[:place] + flags[place + 1 :]


def _out_elements(op: Operator) -> int:
    return prod(op.output_shapes[0]) if op.output_shapes else 0


def _groups(op: Operator) -> int:
    """Number of means, and of standard deviations, saved by a normalisation."""
    if op.kind == "batch_norm":
        return op.input_shapes[0][1] if op.input_shapes and len(op.input_shapes[0]) > 1 else 1
    width = op.attributes.get("width", 1)
    return _out_elements(op) // max(1, int(width) if isinstance(width, int | float) else 1)


def _elementwise(op: Operator, function: str) -> Saved:
    if function in _RESULT:
        return Saved(output=True)
    if function == "dropout":
        return Saved(extra_bytes=_out_elements(op) * MASK_BYTES)
    if function in _NOTHING:
        return Saved(through=function in _THROUGH)
    if function in _PRODUCTS:
        return Saved(inputs=_operands_kept(op))
    return Saved(inputs=True)


def _operands_kept(op: Operator) -> bool:
    """Whether a product saves its operands, each for the gradient of the other.

    A product with a number or with a constant table, such as the sines of rotary embeddings, has
    no second gradient; a single vector is assumed to be a weight.
    """
    if op.parameter_elements or len(op.inputs) > 1:
        return True
    if len(op.input_shapes) < 2:
        return False
    other = op.input_shapes[1]
    return op.input_shapes[0] == other or prod(other) == max(other, default=1)


def _plain_attention(op: Operator) -> Saved:
    """Two products and a softmax: operands and scores are saved."""
    query, key = op.input_shapes[0], op.input_shapes[1]
    scores = prod(query[:-1]) * (key[-2] if len(key) > 1 else 1)
    selected = SAFE_SOFTMAX_BYTES if op.name == FOLDED_ATTENTION else 0
    return Saved(inputs=True, extra_bytes=scores * (SCORE_BYTES + selected))


def _unfused_attention(graph: OperatorGraph) -> Iterator[int]:
    """Attention on more dimensions than fused kernels support, which PyTorch runs unfused.

    Decomposed traces flatten the products; the copies of operands and results around them show
    the number of dimensions.
    """
    after: dict[int, list[Operator]] = {}
    for op in graph.operators:
        for source in op.inputs:
            if graph.operators[source].name == FOLDED_ATTENTION:
                after.setdefault(source, []).append(op)
    for place, op in enumerate(graph.operators):
        if op.kind != "attention" or len(op.input_shapes) < 2:
            continue
        neighbours = [*(graph.operators[i] for i in op.inputs), *after.get(place, ())]
        copied = [s.output_shapes[0] for s in neighbours if s.kind == "copy" and s.output_shapes]
        if any(len(shape) == FUSED_DIMENSIONS + 1 for shape in (*copied, *op.input_shapes)):
            yield place


def _views_around_attention(graph: OperatorGraph, unfused: frozenset[int]) -> Iterator[int]:
    """Operators in a trace for which fused attention allocates no memory.

    These are copies of its result, which it writes in the layout of the next layer, and scalings
    and copies of its operands in a decomposed trace.
    """
    ops = graph.operators
    readers: dict[int, list[int]] = {}
    for place, op in enumerate(ops):
        for source in op.inputs:
            readers.setdefault(source, []).append(place)

    def fused(place: int) -> bool:
        return ops[place].name == FOLDED_ATTENTION and place not in unfused

    before: set[int] = set()
    for place in range(len(ops) - 1, -1, -1):
        op = ops[place]
        scaled = op.attributes.get("function") == "mul"
        if len(op.inputs) != 1 or len(op.input_shapes) != 1 or op.parameter_elements:
            continue
        its_readers = readers.get(place, ())
        into = len(its_readers) == 1 and (its_readers[0] in before or fused(its_readers[0]))
        if into and (scaled or op.name == "aten.clone"):
            before.add(place)
            yield place
            continue
        source = op.inputs[0]
        if op.name in _LAYOUTS and ops[source].kind == "attention" and source not in unfused:
            yield place


FUSED: Final = frozenset({"elementwise", "softmax", "layer_norm", "group_norm", "copy"})
"""Kinds that are fused with their readers and therefore recomputed."""
_RECOMPUTATION_SUMS: Final = frozenset({"add", "sub"})


def is_fused(op: Operator) -> bool:
    """Whether an operator is recomputed in a compiled backward pass."""
    return op.kind in FUSED


def kept_results(
    graph: OperatorGraph,
    rules: Sequence[Saved],
    differentiable: Sequence[bool],
    trained: Sequence[bool],
) -> frozenset[int]:
    """Positions of operators whose results fused operators need again in the backward pass.

    Args:
        graph: forward operators, n of them.
        rules: (n,) tensors that each operator saves in eager mode.
        differentiable: (n,) whether each result has a gradient.
        trained: (n,) whether each operator has trained weights of its own.
    """
    needed, found = [False] * len(graph), set[int]()
    # In reverse, because needing a recomputed result means needing its operands.
    for place, op in reversed(list(enumerate(graph.operators))):
        check()
        if not op.batched:
            continue
        rule, known = rules[place], [differentiable[i] for i in op.inputs]
        fused = is_fused(op) and not rule.view
        if fused and differentiable[place]:
            needed[place] |= rule.output
            weighed = op.parameter_elements > 0
            kept = kept_operands(op, known, trained=trained[place], weighed=weighed)
            for position in kept if rule.inputs else ():
                needed[op.inputs[position]] = True
        if not needed[place]:
            continue
        branches = op.attributes.get("function") in _RECOMPUTATION_SUMS and sum(known) > 1
        if rule.view or (fused and not branches):
            for source in op.inputs:
                needed[source] = True
        else:
            found.add(place)
    return frozenset(found)
