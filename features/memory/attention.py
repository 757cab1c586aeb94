"""Attention's memory beyond its operands: score matrices and the cache of keys and values.

Fused kernels (`scaled_dot_product_attention`, FlashAttention) write no scores and regenerate
dropout masks from the seed. Eager attention (Hugging Face's `eager_attention_forward`) writes, in
turn, scores, scaled scores, masked scores, softmax and dropout.

Transformers models without a cache class keep pairs of tensors, which every generation step
concatenates into new ones (`torch.cat((past_key, key))` in modeling_gpt_neox.py). All old tensors
live until the step is done, as do the logits of the previous step. Keys and values of the first
pass may be views of a larger result, a fused product of queries, keys and values, which then lives
as long as they do. The mechanism is read from that file; that these tensors are live at the same
time was found on the generation rows of `published_memory` (15 peaks with fused attention lie
within 10 MiB of it plus one constant, half of them within 1 MiB).
"""

from collections.abc import Sequence
from math import prod

from forerun.data.graph import Operator, OperatorGraph
from forerun.features.caches import GraphKey, kept_by_graph
from forerun.features.memory.allocator import ACTIVATIONS, RequestLog

MASK_BYTES = 1.0
SOFTMAX_BYTES = 4.0
_CAUSAL = frozenset({"le", "lt", "tril", "triu"})
_GROUPED_RANK = 5
"""(batch, heads of keys, repeats, tokens, width): keys repeated for grouped queries."""


def score_elements(op: Operator) -> int:
    """Elements of all score matrices of one attention at the graph's batch size."""
    if len(op.input_shapes) < 2:
        return 0
    query, key = op.input_shapes[:2]
    return prod(query[:-1]) * (key[-2] if len(key) > 1 else 1)


def attention_heads(graph: OperatorGraph) -> list[int]:
    """Number of query heads of each attention whose operands have a head dimension."""
    queries = [op.input_shapes[:1] for op in graph.operators if op.kind == "attention"]
    return [query[1] for shapes in queries for query in shapes if len(query) == 4]


def write_scores(
    tape: RequestLog,
    op: Operator,
    item: float,
    *,
    upcast: bool,
    dropout: bool,
    legacy: bool = False,
) -> tuple[list[int], int]:
    """Log the requests of eager attention before its second product.

    Args:
        tape: log of requests.
        op: the attention.
        item: bytes per operand element.
        upcast: whether softmax runs in 32 bits regardless of the operands.
        dropout: whether probabilities are dropped.
        legacy: whether softmax keeps both its input and its result, as PyTorch did before 1.11.

    Returns:
        Tensors that the backward pass needs, and the second product's operand; each with a holder.
    """
    n, batched = float(score_elements(op)), op.batched
    masked = len(op.inputs) > len(op.input_shapes) or len(op.input_shapes) > 3
    scores = tape.pass_through(n, (item,) * (3 if masked else 2), batched)
    softmax = tape.new(n, SOFTMAX_BYTES if upcast else item, ACTIVATIONS, batched)
    kept, last = [softmax], tape.hold(softmax)
    if legacy:
        kept.append(tape.like(softmax) if upcast and item < SOFTMAX_BYTES else tape.hold(scores))
    tape.release(scores)
    if upcast and item < SOFTMAX_BYTES:
        down = tape.new(n, item, ACTIVATIONS, batched)
        tape.release(last)
        last = down
    if dropout:
        dropped = tape.new(n, item, ACTIVATIONS, batched)
        kept.append(tape.new(n, MASK_BYTES, ACTIVATIONS, batched))
        tape.release(last)
        last = dropped
    kept.append(tape.hold(last))
    return kept, last


def write_score_gradients(
    tape: RequestLog, op: Operator, item: float, *, upcast: bool, dropout: bool
) -> None:
    """Log the temporary tensors of eager attention's backward pass."""
    wide = SOFTMAX_BYTES if upcast else item
    items = (item, *((item,) if dropout else ()), *((wide,) if wide > item else ()), wide)
    items += ((item,) if wide > item else ()) + (item,)
    tape.release(tape.pass_through(float(score_elements(op)), items, op.batched))


def is_causal(graph: OperatorGraph) -> bool:
    """Whether attention is causal in a text-generating network; false for parts of a pipeline."""
    return _is_causal(GraphKey(graph))


@kept_by_graph()
def _is_causal(key: GraphKey) -> bool:
    masks = attends = False
    for op in key.graph.operators:
        if op.part:
            return False
        attends |= op.kind == "attention"
        if op.attributes.get("causal"):
            return True
        name = op.attributes.get("function", op.name.rpartition(".")[2])
        shape = op.output_shapes[0] if op.output_shapes else ()
        square = len(shape) > 1 and shape[-1] == shape[-2] > 1
        masks |= square and name in _CAUSAL
    return masks and attends


def cached_elements(op: Operator, operators: Sequence[Operator]) -> float:
    """Elements of one attention's keys and values per token position, over the whole batch.

    Keys that a graph repeats for grouped queries are counted before repetition.
    """
    if len(op.input_shapes) < 3:
        return 0.0
    key, value = op.input_shapes[1], op.input_shapes[2]
    tokens = key[-2] if len(key) > 1 else 1
    repeats = 1
    for source in op.inputs:
        copied = operators[source]
        before = copied.input_shapes[0] if copied.input_shapes else ()
        if copied.kind == "copy" and len(before) == _GROUPED_RANK and prod(before) == prod(key):
            repeats = max(repeats, before[2])
    return (prod(key) + prod(value)) / max(1, tokens) / repeats


def prompt_tokens(op: Operator) -> int:
    """Number of key positions per sequence in an attention's graph."""
    shapes = op.input_shapes
    return shapes[1][-2] if len(shapes) > 1 and len(shapes[1]) > 1 else 0


def first_pass_elements(op: Operator, operators: Sequence[Operator]) -> float:
    """Elements kept alive for the keys and values of one attention after the first pass.

    Args:
        op: attention.
        operators: operators of its graph.
    """
    plain = cached_elements(op, operators) * prompt_tokens(op)
    if len(op.input_shapes) < 3:
        return plain
    value = prod(op.input_shapes[2])
    made = [(operators[i].kind, sum(map(prod, operators[i].output_shapes))) for i in op.inputs]
    fused = max((size for kind, size in made if kind == "linear" and size > value), default=0)
    if not fused:
        return plain
    # Among others as large as a value, the first is the query, the second the rotated key.
    others = sum(size == value for _, size in made) - 1
    return fused + max(0, others) * value


def steps_after(prompt: int, total: int) -> list[int]:
    """Cached tokens at the largest generation steps after the first pass.

    Args:
        prompt: tokens of the first pass.
        total: tokens of each sequence at the end.
    """
    return sorted({tokens for tokens in (prompt + 1, total - 1, total) if tokens > prompt})
