"""Device time and occupied units of single operators."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.graph import Operator
from forerun.features.operators.table import OperatorTable
from forerun.features.power.gpu_load import ACTIVITIES, EFFICIENCY, LAUNCH_S, kernel_activity

UNITS = 80.0


def convolution(batch, channels, groups):
    shape = (batch, channels, 28, 28)
    return Operator(
        "conv",
        "conv",
        (shape,),
        (shape,),
        9 * channels * channels // groups,
        {"kernel": (3, 3), "stride": (1, 1), "padding": (1, 1), "groups": groups},
    )


def relu(elements):
    return Operator("elementwise", "relu", ((elements,),), ((elements,),))


def activity_of(operators, roofline_s=1e-3):
    table = OperatorTable.of(operators)
    return kernel_activity(table, np.full(len(table), roofline_s), UNITS)


def test_grouped_convolutions_are_a_class_of_their_own():
    found = activity_of([convolution(32, 64, 1), convolution(32, 64, 64), relu(2**20)])
    assert [ACTIVITIES[a] for a in found.activity] == ["product", "depthwise", "streaming"]


@pytest.mark.parametrize("roofline_s", [1e-9, 1e-6, 1e-3, 1.0])
def test_no_kernel_beats_its_roofline_or_its_launch(roofline_s):
    found = activity_of([convolution(32, 64, 1), convolution(32, 64, 64), relu(2**20)], roofline_s)
    assert (found.seconds > max(roofline_s, LAUNCH_S) * (1 - 1e-12)).all()


def test_a_long_kernel_takes_its_roofline_over_its_efficiency():
    found = activity_of([convolution(32, 64, 1), relu(2**20)], 1.0)
    assert found.seconds == pytest.approx(
        [1.0 / EFFICIENCY["product"], 1.0 / EFFICIENCY["streaming"]], rel=1e-5
    )


@given(st.integers(1, 2**24), st.integers(1, 2**24))
def test_more_elements_fill_no_fewer_units(one, other):
    few, many = activity_of([relu(min(one, other)), relu(max(one, other))]).filled
    assert 0.0 < few <= many <= 1.0


def test_a_chip_is_filled_by_many_threads_and_hardly_by_a_few():
    few, many = activity_of([relu(256), relu(2**26)]).filled
    assert few < 0.01
    assert many == pytest.approx(1.0)


def test_a_product_fills_units_by_its_tiles_of_64():
    """65 x 64 outputs are two tiles, 65 x 65 four; waves on 80 units fill 1 - exp(-waves)."""
    products = [Operator("linear", "", ((65, 8),), ((65, n),), 8 * n) for n in (64, 65)]
    batched = Operator("matmul", "", ((3, 64, 8), (3, 8, 64)), ((3, 64, 64),))
    filled = activity_of([*products, batched]).filled
    assert filled == pytest.approx(1 - np.exp(-np.array([2, 4, 3]) / UNITS))


def test_other_kernels_fill_units_by_threads_of_one_output_each():
    """2,048 threads are resident on a compute unit."""
    assert activity_of([relu(2048 * 80)]).filled == pytest.approx(1 - np.exp(-1.0))
    depthwise = activity_of([convolution(80, 2048, 2048)]).filled
    assert depthwise == pytest.approx(1 - np.exp(-784.0)), "one output element a thread"


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("product", 0.75, 0.79),
        ("depthwise", 0.31, 0.41),
        ("normalization", 0.49, 0.69),
        ("row_normalization", 0.61, 0.83),
        ("pooling", 0.42, 0.67),
        ("streaming", 1.0, 1.1),
        ("reduction", 1.0, 1.4),
    ],
)
def test_efficiencies_lie_between_those_of_two_gpus(name, least, most):
    """Operators of torch_op_energy on A30 and RTX 2080 Ti; none is faster than its bound."""
    assert least <= EFFICIENCY[name] <= min(most, 1.0)
