"""Dropout in training, for networks whose graph was traced in evaluation mode."""

from collections.abc import Sequence

from forerun.data.graph import Operator, OperatorGraph

ATTRIBUTE = "dropout"
"""Attribute for the dropout probability of an operator's result, or of attention's probabilities.
Readers set it where the traced program or its configuration provides it."""


def dropped(graph: OperatorGraph, probability: float | None) -> tuple[bool, ...]:
    """Whether dropout applies to each operator's result (attention: its probabilities) in training.

    Explicit dropout operators in the graph are not included.

    Args:
        graph: forward operators.
        probability: probability of all dropouts, 0 for none; None keeps those of the graph.
            If the graph has none and a probability is given, dropout is placed as in
            transformers: on attention, and on linear layers added to the residual.
    """
    n = len(graph)
    if probability == 0.0:
        return (False,) * n
    known = tuple(bool(op.attributes.get(ATTRIBUTE)) for op in graph.operators)
    if probability is None or any(known) or has_dropout_operators(graph):
        return known
    return _usual(graph.operators)


def says_of_dropout(graph: OperatorGraph) -> bool:
    """Whether a graph specifies where dropout applies in training."""
    marked = any(op.attributes.get(ATTRIBUTE) for op in graph.operators)
    return marked or has_dropout_operators(graph)


def has_dropout_operators(graph: OperatorGraph) -> bool:
    """Whether a graph contains dropout operators."""
    return any(op.attributes.get("function") == "dropout" for op in graph.operators)


def _usual(operators: Sequence[Operator]) -> tuple[bool, ...]:
    added = {
        source
        for op in operators
        if op.attributes.get("function") == "add" and len(op.inputs) > 1
        for source in op.inputs
    }
    return tuple(
        op.kind == "attention" or (op.kind == "linear" and place in added)
        for place, op in enumerate(operators)
    )
