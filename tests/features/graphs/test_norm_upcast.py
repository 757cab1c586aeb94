"""Chains of a root-mean-square norm are found from their square to their last product."""

import pytest

from forerun.data.graph import Operator, OperatorGraph
from forerun.features.memory.liveness import NormChain, in_full_precision, norm_chains

SHAPE = ((4, 64),)


def step(function, *inputs):
    return Operator("elementwise", function, SHAPE, SHAPE, 0, {"function": function}, inputs)


def norm(square="pow", steps=0, source=0, other=0):
    """A layer, its square, mean, epsilon, root, and their product; more steps before the root."""
    ops = [Operator("linear", "fc", SHAPE, SHAPE, 64 * 64), step(square, source)]
    ops.append(Operator("reduce", "mean", SHAPE, ((4, 1),), inputs=(1,)))
    for _ in range(steps):
        ops.append(step("add", len(ops) - 1))
    ops.append(step("add", len(ops) - 1))
    ops.append(step("rsqrt", len(ops) - 1))
    ops.append(step("mul", other, len(ops) - 1))
    return OperatorGraph((*ops, step("mul", len(ops) - 1)))


@pytest.mark.parametrize("square", ["pow", "mul"])
def test_a_norm_is_found_whichever_way_it_squares(square):
    assert norm_chains(norm(square)) == (NormChain(1, 5),)
    assert norm_chains(norm("sin")) == ()


def test_the_root_must_be_of_what_it_is_multiplied_with():
    """The square of the layer, times something else: no norm."""
    graph = norm()
    ops = list(graph.operators)
    ops[5] = step("mul", 2, 4)
    assert norm_chains(OperatorGraph(tuple(ops))) == ()


def test_long_chains_are_no_norms():
    """From the root to the square there are at most eight steps."""
    assert len(norm_chains(norm(steps=5))) == 1
    assert norm_chains(norm(steps=6)) == ()


def test_all_between_the_square_and_the_product_are_in_32_bits():
    graph = norm()
    assert in_full_precision(norm_chains(graph), graph) == dict.fromkeys((1, 2, 3, 4), 4.0)
    assert in_full_precision((), graph) == {}
