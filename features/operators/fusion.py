"""Folds operators that run as one kernel into one operator."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from math import prod

from forerun.data.graph import Operator, OperatorGraph
from forerun.features.deadline import watched

_SCALES = frozenset({"mul", "div"})
_MASKS = frozenset({"add", "mul", "div"})
_SOFTMAX_NAMES = ("aten._safe_softmax", "aten._softmax", "aten.softmax", "Softmax")


def fuse_attention(
    graph: OperatorGraph, softmax_names: Collection[str] = _SOFTMAX_NAMES
) -> OperatorGraph:
    """Fold scale, Q x K, mask, softmax and x V into one `attention` operator each.

    Only chains whose intermediate results have no other readers are folded, so no work is lost:
    the arithmetic of both products and the softmax stays, the traffic of the score matrix goes
    (Dao et al. 2022, "FlashAttention").

    Args:
        graph: any graph; returned unchanged without such chains.
        softmax_names: names of the softmax operators that mark a chain.
    """
    ops = graph.operators
    readers: dict[int, list[int]] = defaultdict(list)
    for position, op in enumerate(watched(ops)):
        for source in op.inputs:
            readers[source].append(position)
    dropped: set[int] = set()
    fused: dict[int, Operator] = {}
    for position, op in enumerate(ops):
        if op.kind == "softmax" and op.name in softmax_names:
            chain = _chain(ops, readers, position)
            if chain is not None:
                last, made, inner = chain
                fused[last] = made
                dropped |= inner
    return graph if not fused else _without(graph, fused, dropped)


def _chain(
    ops: Sequence[Operator], readers: dict[int, list[int]], softmax: int
) -> tuple[int, Operator, set[int]] | None:
    """Position of the last product, the attention operator, and the positions it replaces."""
    if len(readers[softmax]) != 1:
        return None
    last = readers[softmax][0]
    inner, sources = {softmax}, list(ops[softmax].inputs)
    extra: list[int] = []
    scores = _producer_of_scores(ops, readers, sources, inner, extra)
    if scores is None or ops[last].kind != "matmul" or len(ops[last].input_shapes) != 2:
        return None
    product = ops[scores]
    if len(product.input_shapes) != 2 or prod(ops[last].input_shapes[0]) != prod(
        product.output_shapes[0]
    ):
        return None
    inner.add(scores)
    operands = [_unscaled(ops, readers, i, inner) for i in product.inputs]
    value = [i for i in ops[last].inputs if i != softmax]
    query, transposed_key = product.input_shapes
    key = (*transposed_key[:-2], transposed_key[-1], transposed_key[-2])
    made = Operator(
        "attention",
        "fused.attention",
        (query, key, ops[last].input_shapes[1]),
        ops[last].output_shapes,
        attributes={"function": "scaled_dot_product_attention"},
        inputs=tuple(dict.fromkeys([*operands, *value, *extra])),
        batched=ops[last].batched,
        repeat=ops[last].repeat,
    )
    return last, made, inner


def _producer_of_scores(
    ops: Sequence[Operator],
    readers: dict[int, list[int]],
    sources: list[int],
    inner: set[int],
    extra: list[int],
) -> int | None:
    """Walk up from the softmax over masks and scales to the first product."""
    while sources:
        products = [i for i in sources if _alone(readers, i) and ops[i].kind == "matmul"]
        if products:
            extra.extend(i for i in sources if i != products[0])
            return products[0]
        steps = [
            i
            for i in sources
            if _alone(readers, i)
            and ops[i].kind == "elementwise"
            and ops[i].attributes.get("function") in _MASKS
        ]
        if len(steps) != 1:
            return None
        extra.extend(i for i in sources if i != steps[0])
        inner.add(steps[0])
        sources = list(ops[steps[0]].inputs)
    return None


def _unscaled(
    ops: Sequence[Operator], readers: dict[int, list[int]], position: int, inner: set[int]
) -> int:
    """The operand of a scale before the product; the position itself without a scale."""
    op = ops[position]
    scale = op.attributes.get("function") in _SCALES and len(op.input_shapes) == 1
    if scale and op.kind == "elementwise" and _alone(readers, position) and len(op.inputs) == 1:
        inner.add(position)
        return op.inputs[0]
    return position


def _alone(readers: dict[int, list[int]], position: int) -> bool:
    return len(readers[position]) == 1


def _without(graph: OperatorGraph, fused: dict[int, Operator], dropped: set[int]) -> OperatorGraph:
    kept: list[Operator] = []
    where: dict[int, int] = {}
    for position, op in enumerate(watched(graph.operators)):
        if position in dropped:
            continue
        chosen = fused.get(position, op)
        where[position] = len(kept)
        inputs = tuple(where[i] for i in chosen.inputs if i in where)
        kept.append(replace(chosen, inputs=inputs))
    return replace(graph, operators=tuple(kept))
