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
from forerun.features.deadline import check
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
    needed, found = [False] * len(graph), set[int]()
    # In reverse, since what is needed of a recomputed result is needed of its operands.
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
        branches = op.attributes.get("function") in _SUMS and sum(known) > 1
        if rule.view or (fused and not branches):
            for source in op.inputs:
                needed[source] = True
        else:
            found.add(place)
    return frozenset(found)
