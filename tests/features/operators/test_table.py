"""Costs by hand, and exact change with the batch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.graph import Operator
from forerun.features.operators.costs import operator_cost
from forerun.features.operators.kinds import CLASS_OF_KIND, KINDS, OPERATOR_CLASSES
from forerun.features.operators.table import OperatorTable
from tests.laws import graphs


@pytest.mark.parametrize(
    ("op", "flops", "gemm"),
    [
        (Operator("linear", "", ((8, 16),), ((8, 32),), 512), 2 * 8 * 16 * 32, (1, 8, 32, 16)),
        (
            Operator("matmul", "", ((3, 8, 16), (3, 16, 4)), ((3, 8, 4),)),
            2 * 3 * 8 * 16 * 4,
            (3, 8, 4, 16),
        ),
        (
            Operator(
                "conv",
                "",
                ((2, 8, 10, 10),),
                ((2, 16, 8, 8),),
                8 // 4 * 16 * 9,
                {"kernel": (3, 3), "groups": 4},
            ),
            2 * (2 * 64) * 16 * (2 * 9),
            (4, 128, 4, 18),
        ),
    ],
    ids=["linear", "matmul", "grouped conv"],
)
def test_products_count_two_flops_a_multiply_add(op, flops, gemm):
    cost = operator_cost(op)
    assert cost.flops == flops
    assert (cost.batch, cost.m, cost.n, cost.k) == gemm


def test_attention_does_both_products_and_the_softmax():
    heads = (2, 4, 128, 64)
    cost = operator_cost(Operator("attention", "", (heads,) * 3, (heads,)))
    assert cost.flops == 2 * 8 * 128 * 128 * (64 + 64) + 5 * 8 * 128 * 128


def test_rows_and_their_width():
    norm = Operator("layer_norm", "", ((4, 10, 64),), ((4, 10, 64),), 128, {"width": 64})
    cost = operator_cost(norm)
    assert (cost.rows, cost.width) == (40, 64)


@given(graphs(), st.integers(1, 16))
def test_the_batch_scales_work_but_no_weight(graph, factor):
    table = OperatorTable.of_graph(graph)
    scaled = table.at_batch(factor)
    grows = np.where(table.batched, factor, 1)
    np.testing.assert_allclose(scaled.flops, table.flops * grows)
    np.testing.assert_allclose(scaled.out_elements, table.out_elements * grows)
    np.testing.assert_array_equal(scaled.parameter_elements, table.parameter_elements)


@given(graphs())
def test_tables_concatenate_and_take_by_row(graph):
    table = OperatorTable.of_graph(graph)
    twice = OperatorTable.concatenate([table, table])
    again = twice.take(np.arange(len(table), 2 * len(table)))
    np.testing.assert_array_equal(again.flops, table.flops)
    np.testing.assert_array_equal(again.kind, table.kind)


def test_every_kind_has_a_class():
    assert len(CLASS_OF_KIND) == len(KINDS)
    assert {kind.op_class for kind in KINDS} == set(OPERATOR_CLASSES)
