"""Costs of one operator: what does not apply to a kind is zero."""

import pytest

from forerun.data.graph import Operator
from forerun.features.operators.costs import operator_cost


@pytest.mark.parametrize(
    ("operator", "absent"),
    [
        (
            Operator("linear", "fc", ((4, 8),), ((4, 16),), 128),
            {"rows", "width", "kernel", "stride", "heavy", "steps"},
        ),
        (
            Operator("elementwise", "relu", ((4, 8),), ((4, 8),)),
            {"batch", "m", "n", "k", "rows", "width", "kernel", "stride", "heavy", "steps"},
        ),
    ],
    ids=["linear", "elementwise"],
)
def test_what_does_not_apply_is_zero(operator, absent):
    cost = operator_cost(operator)._asdict()
    assert {name for name, value in cost.items() if value == 0.0} - {"parameter_elements"} == absent


def cost(kind, reads, writes, parameters=0, **attributes):
    return operator_cost(Operator(kind, kind, reads, writes, parameters, attributes))


def view(found):
    return found.batch, found.m, found.n, found.k


def test_a_dense_layer_is_one_product():
    """4 x 3 rows of 8 values, 16 outputs: a multiply-add counts as two."""
    found = cost("linear", ((4, 3, 8),), ((4, 3, 16),), 8 * 16)
    assert found.flops == 2 * 12 * 8 * 16
    assert view(found) == (1, 12, 16, 8)
    assert (found.in_elements, found.out_elements, found.parameter_elements) == (96, 192, 128)


def test_a_batched_product_is_as_many_as_its_first_dimensions():
    found = cost("matmul", ((2, 5, 3, 8), (2, 5, 8, 7)), ((2, 5, 3, 7),))
    assert found.flops == 2 * 10 * 3 * 7 * 8
    assert view(found) == (10, 3, 7, 8)


def test_a_convolution_is_a_product_of_windows_for_each_group():
    """ResNet-50's first layer has 118 million multiply-adds (He et al. 2015, 224 x 224)."""
    first = cost("conv", ((1, 3, 224, 224),), ((1, 64, 112, 112),), 64 * 3 * 49,
                 kernel=(7, 7), stride=(2, 2))  # fmt: skip
    assert first.flops / 2 == 118_013_952
    assert view(first) == (1, 112 * 112, 64, 147)
    assert (first.kernel, first.stride) == (49, 2)
    depthwise = cost("conv", ((1, 32, 8, 8),), ((1, 32, 8, 8),), 288, kernel=(3, 3), groups=32)
    assert depthwise.flops == 2 * 64 * 32 * 9
    assert view(depthwise) == (32, 64, 1, 9)


def test_a_transposed_convolution_is_that_of_its_gradient():
    up = cost("conv_transpose", ((1, 32, 8, 8),), ((1, 16, 16, 16),), 0, kernel=(2, 2), stride=2)
    down = cost("conv", ((1, 16, 16, 16),), ((1, 32, 8, 8),), 0, kernel=(2, 2), stride=2)
    assert (up.flops, view(up)) == (down.flops, view(down))
    assert up.stride == 2


def test_attention_is_two_products_and_a_softmax_between_them():
    """Scores of 10 x 12 in 2 x 4 heads of 16, five operations each; values of width 24."""
    query, key, value = (2, 4, 10, 16), (2, 4, 12, 16), (2, 4, 12, 24)
    found = cost("attention", (query, key, value), ((2, 4, 10, 24),))
    assert found.flops == 2 * 8 * 10 * 12 * (16 + 24) + 5 * 8 * 10 * 12
    assert view(found) == (8, 10, 12, 16)
    assert (found.rows, found.width) == (80, 12)


def test_a_recurrent_layer_uses_every_weight_at_every_step():
    found = cost("recurrent", ((7, 2, 16),), ((7, 2, 32),), 4 * 32 * 48)
    assert found.flops == 2 * 14 * 4 * 32 * 48
    assert view(found) == (1, 2, 32, 32)
    assert found.steps == 7


@pytest.mark.parametrize(("name", "gates"), [("aten.lstm", 4), ("GRU", 3), ("aten.rnn_tanh", 1)])
def test_the_steps_of_all_layers_and_directions_wait_for_each_other(name, gates):
    """Two layers in two directions over five positions of three samples, which come first."""
    shapes = ((3, 5, 16), (4, 3, 32))
    found = operator_cost(Operator("recurrent", name, shapes, ((3, 5, 64),), 999))
    assert view(found) == (1, 3, gates * 32, 32)
    assert found.steps == 4 * 5


def test_rows_windows_and_functions():
    norm = cost("layer_norm", ((4, 6, 8),), ((4, 6, 8),), 16)
    assert (norm.rows, norm.width) == (24, 8)
    declared = cost("layer_norm", ((4, 6, 8),), ((4, 6, 8),), 96, width=48)
    assert (declared.rows, declared.width) == (4, 48)
    pool = cost("pool", ((1, 8, 6, 6),), ((1, 8, 3, 3),), kernel=(2, 2), stride=(2, 2))
    assert (pool.kernel, pool.stride) == (4, 2)
    assert pool.flops >= 8 * 36, "every value is looked at"
    functions = [cost("elementwise", ((8,),), ((8,),), function=f).heavy for f in ("pow", "gelu",
                 "div", "relu")]  # fmt: skip
    assert functions == sorted(functions, reverse=True)
    assert functions[-1] == 0.0 < functions[-2]
