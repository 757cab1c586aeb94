"""Amounts of work, counted by hand."""

from dataclasses import replace

import pytest

from forerun.data.graph import Operator, OperatorGraph
from forerun.features.processors.work import (
    CACHE_BYTES,
    COLUMNS,
    work_by_node,
    work_of,
)

DENSE = Operator("linear", "Gemm", ((8, 64),), ((8, 48),), 64 * 48)
RELU = Operator("elementwise", "Relu", ((8, 48),), ((8, 48),), 0, {"function": "relu"}, (0,))


def amounts(*ops, factor=1.0, cache_bytes=CACHE_BYTES):
    found = work_of(OperatorGraph(ops, batch_size=8), factor, cache_bytes).amounts
    return {column: n for column, n in zip(COLUMNS, found.tolist(), strict=True) if n}


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_a_small_network_by_hand(factor):
    found = amounts(DENSE, RELU, factor=factor)
    assert found.pop(("memory", "far_weights")) < 0.01
    assert found == {
        ("gemm", "flops"): factor * 2 * 8 * 48 * 64,
        ("gemm", "read"): factor * 8 * 64,
        ("gemm", "written"): factor * 8 * 48,
        ("cheap", "values"): factor * 8 * 48,
        ("memory", "near_weights"): pytest.approx(4 * 64 * 48),
        ("fixed", "product_node"): 1.0,
        ("fixed", "other_node"): 1.0,
        ("fixed", "run"): 1.0,
        ("fixed", "join"): 1.0,
    }


def test_half_of_weights_as_large_as_the_cache_come_from_memory():
    held = 4.0 * 64 * 48
    found = amounts(DENSE, cache_bytes=held)
    assert found["memory", "far_weights"] == pytest.approx(held / 2)
    assert found["memory", "near_weights"] == pytest.approx(held / 2)


def test_activations_that_outgrow_a_cache_are_counted_beyond_it():
    """2 x 4 MiB of a sum; a core's own cache holds one of them, the last level 6 here."""
    shape = ((2**20,),)
    large = Operator("elementwise", "Relu", shape, shape, 0, {"function": "relu"})
    found = amounts(large, cache_bytes=6 * 2**20)
    assert found["memory", "near_bytes"] == 7 * 2**20
    assert found["memory", "far_bytes"] == 2 * 2**20


def test_repeated_operators_work_as_often_and_need_the_cache_as_often():
    thrice = Operator(DENSE.kind, DENSE.name, DENSE.input_shapes, DENSE.output_shapes, 64 * 48,
                      repeat=3)  # fmt: skip
    found, once = amounts(thrice), amounts(DENSE)
    for column in (("gemm", "flops"), ("gemm", "read"), ("fixed", "product_node")):
        assert found[column] == 3 * once[column]
    assert found["fixed", "run"] == 1.0
    held = 4.0 * 64 * 48
    shared = amounts(thrice, cache_bytes=3 * held)
    assert shared["memory", "far_weights"] == pytest.approx(3 * held / 2)
    assert work_of(OperatorGraph((thrice,)), 1.0).nodes == 3


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_the_work_of_nodes_adds_up_to_that_of_the_graph_without_the_run(factor):
    repeated = replace(DENSE, repeat=5, batched=False)
    graph = OperatorGraph((DENSE, RELU, repeated), batch_size=8)
    by_node, owners, repeats = work_by_node(graph, factor)
    whole = work_of(graph, factor).amounts
    whole[COLUMNS.index(("fixed", "run"))] = 0.0
    assert by_node.sum(axis=0) == pytest.approx(whole, rel=1e-12)
    assert owners == graph.operators
    assert repeats.tolist() == [1.0, 1.0, 5.0]
