"""Where a network drops activations in training, though its graph was traced in evaluation mode."""

from collections.abc import Sequence

from forerun.data.graph import Operator, OperatorGraph

ATTRIBUTE = "dropout"
"""Attribute of an operator whose result is dropped, or of attention whose probabilities are: the
probability. Readers write it where the traced program or its configuration tells."""


def dropped(graph: OperatorGraph, probability: float | None) -> tuple[bool, ...]:
    """Whether each operator's result (of attention: its probabilities) is dropped in training.

    Dropout operators of the graph itself are not among them.

    Args:
        graph: forward operators.
        probability: probability of all dropouts, 0 for none; None keeps those of the graph.
            Where a graph says of none, and one is asked for, what transformers drop is taken:
            results of linear layers that are added to the residual, and attention.
    """
    n = len(graph)
    if probability == 0.0:
        return (False,) * n
    known = tuple(bool(op.attributes.get(ATTRIBUTE)) for op in graph.operators)
    if probability is None or any(known) or has_dropout_operators(graph):
        return known
    return _usual(graph.operators)


def says_of_dropout(graph: OperatorGraph) -> bool:
    """Whether a graph tells what is dropped in training."""
    marked = any(op.attributes.get(ATTRIBUTE) for op in graph.operators)
    return marked or has_dropout_operators(graph)


def has_dropout_operators(graph: OperatorGraph) -> bool:
    """Whether a graph holds dropout as operators."""
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
