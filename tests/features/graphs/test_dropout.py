"""Where dropout applies in training: as the graph says, else where transformers have it."""

import pytest

from forerun.data.graph import Operator, OperatorGraph
from forerun.features.graphs.dropout import dropped, has_dropout_operators, says_of_dropout

SHAPE = (4, 64)


def operator(kind, *inputs, **attributes):
    return Operator(kind, kind, (SHAPE,), (SHAPE,), 0, attributes, inputs)


def block(**attention):
    """Attention, its projection, the residual, a layer of which nothing is added."""
    return OperatorGraph(
        (
            operator("linear"),
            operator("attention", 0, **attention),
            operator("linear", 1),
            operator("elementwise", 0, 2, function="add"),
            operator("linear", 3),
            operator("elementwise", 4, function="add"),
        )
    )


def test_a_graph_that_says_nothing_gets_dropout_where_transformers_have_it():
    """On attention and on linear layers that are added to the residual, which one is too here."""
    assert dropped(block(), 0.1) == (True, True, True, False, False, False)
    assert not says_of_dropout(block())


def test_a_probability_of_zero_is_none_at_all_and_no_probability_is_what_the_graph_says():
    marked = block(dropout=0.1)
    assert not any(dropped(marked, 0.0))
    assert dropped(marked, None) == (False, True, False, False, False, False)
    assert not any(dropped(block(), None))


@pytest.mark.parametrize("probability", [0.1, 0.5])
def test_what_a_graph_says_holds_whatever_the_probability(probability):
    marked = block(dropout=0.1)
    assert says_of_dropout(marked)
    assert dropped(marked, probability) == dropped(marked, None)
    assert not any(dropped(block(dropout=0.0), None))


def test_dropout_operators_stand_for_themselves():
    graph = OperatorGraph((*block().operators, operator("elementwise", 5, function="dropout")))
    assert has_dropout_operators(graph)
    assert says_of_dropout(graph)
    assert not has_dropout_operators(block())
    assert not any(dropped(graph, 0.1))
