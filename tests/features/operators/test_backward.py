"""A training step: products twice more, every weight updated once, batch scales it like forward."""

import numpy as np

from forerun.data.graph import Operator
from forerun.features.operators.query_table import training_table
from forerun.features.operators.table import OperatorTable

LINEAR = Operator("linear", "fc", ((8, 16),), ((8, 32),), 512)
MATMUL = Operator("matmul", "bmm", ((2, 8, 16), (2, 16, 4)), ((2, 8, 4),))
RELU = Operator("elementwise", "relu", ((8, 32),), ((8, 32),))


def test_products_do_their_flops_three_times():
    for op in (LINEAR, MATMUL):
        forward = OperatorTable.of([op])
        step = training_table(forward)
        products = step.flops[step.kind == forward.kind[0]].sum()
        assert products == 3 * forward.flops[0]


def test_gradients_have_the_shapes_of_what_they_are_gradients_of():
    step = training_table(OperatorTable.of([LINEAR]))
    assert (step.m[1], step.n[1], step.k[1]) == (8, 16, 32)
    assert step.out_elements[1] == 8 * 16
    assert (step.m[2], step.n[2], step.k[2]) == (16, 32, 8)
    assert step.out_elements[2] == 512


def test_other_operators_read_once_more_what_forward_saved():
    step = training_table(OperatorTable.of([RELU]))
    assert len(step) == 2
    assert step.in_elements[1] == 2 * 8 * 32
    assert step.out_elements[1] == 8 * 32
    assert step.operands.tolist() == [1, 2], "the gradient and what was saved"


def test_the_second_operand_of_a_batched_product_has_a_gradient_of_its_shape():
    """2 x 8 x 16 times 2 x 16 x 4."""
    step = training_table(OperatorTable.of([MATMUL]))
    assert step.out_elements.tolist() == [2 * 8 * 4, 2 * 8 * 16, 2 * 16 * 4]
    assert step.in_elements[1:].tolist() == [2 * (8 * 4 + 16 * 4), 2 * (8 * 16 + 8 * 4)]


def test_the_optimizer_touches_every_weight_and_no_batch():
    step = training_table(OperatorTable.of([LINEAR, RELU]))
    assert step.in_elements[-1] == 4 * 512
    assert not step.batched[-1]
    assert len(training_table(OperatorTable.of([RELU]))) == 2


def test_a_step_at_a_larger_batch_does_proportionally_more_products():
    forward = OperatorTable.of([LINEAR, MATMUL])
    one, four = training_table(forward), training_table(forward.at_batch(4))
    np.testing.assert_allclose(four.flops[:-1], 4 * one.flops[:-1])
    np.testing.assert_allclose(four.flops[-1], one.flops[-1])
