"""Tensors that tensor parallelism divides (Megatron-LM; Korthikanti et al. 2022, arXiv 2205.05198).

Linear layers form pairs: the first is divided by columns, and so are its result and everything
computed from it; the second is divided by rows, and its result is replicated. A last layer that
gives logits is a first one without a second: logits and their loss are divided by vocabulary.
Norms, dropout and residuals between the pairs are replicated unless sequence parallelism divides
them along the sequence.
"""

from forerun.data.graph import Operator, OperatorGraph

_DIVIDED = frozenset({"linear", "embedding"})


def divided_results(graph: OperatorGraph, *, sequence_parallel: bool = False) -> list[bool]:
    """Whether each operator's result is divided among the devices.

    Args:
        graph: forward operators.
        sequence_parallel: whether operators between pairs of layers are divided as well. Tensors
            that all samples share (masks, tables of positions) are not; inputs gathered for one
            product count as their parts, as if the backward pass gathered them again.
    """
    known: list[bool] = []
    for op in graph.operators:
        before = any(known[i] for i in op.inputs)
        known.append(not before if op.kind == "linear" else before)
    if sequence_parallel:
        return [one or op.batched for one, op in zip(known, graph.operators, strict=True)]
    return known


def divided_weights(op: Operator) -> bool:
    """Whether an operator's weights are divided: of linear layers and embeddings."""
    return op.kind in _DIVIDED
