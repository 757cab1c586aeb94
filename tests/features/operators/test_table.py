"""Costs by hand, and exact change with the batch."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forerun.features.operators.table import OperatorTable
from tests.laws import graphs


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
