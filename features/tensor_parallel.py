"""What tensor parallelism divides (Megatron-LM; Korthikanti et al. 2022, arXiv 2205.05198).

Linear layers come in pairs: the first is divided by columns, so that its result and all that is
made of it is divided; the second by rows, and its result is whole on every device. Norms, dropout
and residuals between the pairs are not divided (without sequence parallelism).
"""

from forerun.data.graph import Operator, OperatorGraph

_DIVIDED = frozenset({"linear", "embedding"})


def divided_results(graph: OperatorGraph) -> list[bool]:
    """Whether each operator's result is divided among the devices."""
    known: list[bool] = []
    for op in graph.operators:
        before = any(known[i] for i in op.inputs)
        known.append(not before if op.kind == "linear" else before)
    return known


def divided_weights(op: Operator) -> bool:
    """Whether an operator's weights are divided: of linear layers and embeddings."""
    return op.kind in _DIVIDED
