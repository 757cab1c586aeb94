"""What tensor parallelism divides (Megatron-LM; Korthikanti et al. 2022, arXiv 2205.05198).

Linear layers come in pairs: the first is divided by columns, so that its result and all that is
made of it is divided; the second by rows, and its result is whole on every device. A last layer
that gives logits is a first one without a second: logits and their loss are divided by vocabulary.
Norms, dropout and residuals between the pairs are whole without sequence parallelism, which divides
them along the sequence.
"""

from forerun.data.graph import Operator, OperatorGraph

_DIVIDED = frozenset({"linear", "embedding"})


def divided_results(graph: OperatorGraph, *, sequence_parallel: bool = False) -> list[bool]:
    """Whether each operator's result is divided among the devices.

    Args:
        graph: forward operators.
        sequence_parallel: whether what lies between pairs of layers is divided, too. What every
            sample shares (masks, tables of positions) is not; inputs gathered for one product
            count as their parts, as if the backward pass gathered them again.
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
