"""Tensors that a compiled training step saves for its backward pass, and those it recomputes.

torch.compile fuses pointwise operators, norms and copies into a few kernels. Its partitioner
(`min_cut_rematerialization_partition` of AOTAutograd) saves the inputs of such a kernel rather than
its intermediate results, and recomputes the rest in the backward pass. Results of matrix products,
attention, convolutions, reductions and sums of two branches are not recomputed.
Operands of products are written for the product anyway and are kept, as in eager mode: that was
chosen on the two compiled rows of torchtune's table, whose activations are 8 times the width and 3
times the inner width of a Llama block within 0.1 %.
"""

from collections.abc import Sequence
from typing import Final

from forerun.data.graph import Operator, OperatorGraph
from forerun.features.memory.saved_tensors import Saved, kept_operands

FUSED: Final = frozenset({"elementwise", "softmax", "layer_norm", "group_norm", "copy"})
"""Kinds that are recomputed: they are fused with their readers."""
_SUMS: Final = frozenset({"add", "sub"})


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
        trained: (n,) whether each operator has weights of its own that get a gradient.
    """
    operators, found = graph.operators, set[int]()
    origins: list[frozenset[int]] = []
    for place, op in enumerate(operators):
        rule, known = rules[place], [differentiable[i] for i in op.inputs]
        read = [origins[i] for i in op.inputs]
        if not op.batched:
            origins.append(frozenset())
            continue
        branches = op.attributes.get("function") in _SUMS and sum(known) > 1
        again = rule.view or (is_fused(op) and not branches)
        origins.append(frozenset[int]().union(*read) if again else frozenset({place}))
        if rule.view or not is_fused(op) or not differentiable[place]:
            continue
        if rule.inputs:
            weighed = op.parameter_elements > 0
            for position in kept_operands(op, known, trained=trained[place], weighed=weighed):
                found |= read[position] if position < len(read) else frozenset()
        if rule.output:
            found |= origins[place]
    return frozenset(found)
