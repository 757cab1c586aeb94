"""Labels of operators: one for each row of a query's table, equal for equal operators."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.graph import Operator
from forerun.data.workload import Kernel, Network
from forerun.features.operators.kinds import IS_GEMM, operator_label, workload_labels
from forerun.features.operators.query_table import query_table
from tests.laws import graphs


@given(graph=graphs(), phase=st.sampled_from(["inference", "training"]))
def test_every_row_of_a_table_has_the_label_of_its_operator(graph, phase):
    run = Network(graph, 3, phase=phase)
    labels, table = workload_labels(run), query_table(run)
    assert len(labels) == len(table)
    forward = len(graph)
    assert labels[:forward] == [operator_label(op) for op in graph.operators]
    for label, kind in zip(labels[forward:], table.kind[forward:], strict=True):
        product = label.startswith(("gradient of the input", "gradient of the second"))
        assert product == bool(IS_GEMM[kind])


def test_an_operator_alone_has_one_label():
    op = Operator("softmax", "Softmax", ((8, 16),), ((8, 16),))
    assert workload_labels(Kernel(op)) == [operator_label(op)]


@pytest.mark.parametrize(
    ("op", "label"),
    [
        (Operator("conv", "Conv", ((1, 3, 8, 8),), ((1, 4, 8, 8),), 108, {"kernel": (3, 3)}),
         "Conv kernel 3x3, 1x3x8x8 -> 1x4x8x8"),
        (Operator("pool", "", ((1, 3, 8, 8),), ((1, 3, 4, 4),), 0, {"kernel": 2}),
         "pool kernel 2x2, 1x3x8x8 -> 1x3x4x4"),
        (Operator("elementwise", "add", ((4,), (4,)), ((4,),)), "add 4, 4 -> 4"),
        (Operator("copy", "constant", (), ((4, 2),)), "constant 4x2"),
        (Operator("reduce", "sum", ((4, 2),), ((),)), "sum 4x2 -> scalar"),
    ],
)  # fmt: skip
def test_a_label_says_the_name_the_shapes_and_the_window(op, label):
    assert operator_label(op) == label
