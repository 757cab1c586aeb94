"""Caches of keys and values that every step of generation concatenates into new tensors.

Models of transformers without a cache class keep pairs of tensors (`torch.cat((past_key, key))` in
modeling_gpt_neox.py). All old tensors live until the step is done, and so do the logits of the step
before. Keys and values of the first pass may be views of a larger result, a fused product of
queries, keys and values, which lives as long as they do. The mechanism is read from that file; that
these tensors are live at the same time was found on the generation rows of `published_memory` (15
peaks with fused attention lie within 10 MiB of it and one constant, half of them within 1 MiB).
"""

from collections.abc import Sequence
from math import prod

from forerun.data.graph import Operator
from forerun.features.memory.attention import cached_elements


def prompt_tokens(op: Operator) -> int:
    """Number of positions per sequence of an attention's keys in its graph."""
    shapes = op.input_shapes
    return shapes[1][-2] if len(shapes) > 1 and len(shapes[1]) > 1 else 0


def first_pass_elements(op: Operator, operators: Sequence[Operator]) -> float:
    """Elements that live for the keys and values of one attention after the first pass.

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
    # Of the others of the size of a value the first is the query, the second the rotated key.
    others = sum(size == value for _, size in made) - 1
    return fused + max(0, others) * value


def steps_after(prompt: int, total: int) -> list[int]:
    """Tokens of the caches after the first one, for the largest steps only.

    Args:
        prompt: tokens of the first pass.
        total: tokens of each sequence at the end.
    """
    return sorted({tokens for tokens in (prompt + 1, total - 1, total) if tokens > prompt})
