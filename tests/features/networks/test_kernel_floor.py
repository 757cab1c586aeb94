"""The shortest time of a kernel, by hand and by law."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.features.lowering import Kernels
from forerun.features.lowering.kernel_kinds import KERNEL_CODE
from forerun.features.lowering.kernels import Launch, launch
from forerun.features.networks.features import Chip
from forerun.features.networks.kernel_floor import (
    SHORTEST_KERNEL_S,
    TENSOR_TILE,
    VECTOR_TILE,
    shortest_seconds,
)

CHIP = Chip(
    matrix=100e12, conv=200e12, vector=25e12, bandwidth=1e12, units=100.0, l2_bytes=2**24,
    is_cpu=False,
)  # fmt: skip
LINEAR = next(name for name in KERNEL_CODE if name.startswith("linear/"))
CONV = next(name for name in KERNEL_CODE if name.startswith("conv/"))


def product(k: float, kind: str = LINEAR, tensor: bool = True, batch: float = 1.0) -> Kernels:
    row = Launch(KERNEL_CODE[kind], work=2.0 * 64 * 64 * k, m=64.0, n=64.0, k=k, tensor=tensor)
    return Kernels.of((row,), batch, 0.0, 0)


def test_what_is_no_product_takes_the_shortest_kernel() -> None:
    kernels = Kernels.of((launch("elementwise", 1e9), launch("cast", 1.0)), 1.0, 0.0, 0)
    np.testing.assert_array_equal(shortest_seconds(kernels, CHIP), SHORTEST_KERNEL_S)


def test_a_product_takes_one_tile_on_one_unit_more() -> None:
    tile = 2 * TENSOR_TILE**2 * 4096 / (100e12 / 100)
    assert shortest_seconds(product(4096), CHIP)[0] == pytest.approx(SHORTEST_KERNEL_S + tile)


def test_without_matrix_units_the_tile_and_the_rate_are_smaller() -> None:
    tile = 2 * VECTOR_TILE**2 * 4096 / (25e12 / 100)
    found = shortest_seconds(product(4096, tensor=False), CHIP)[0]
    assert found == pytest.approx(SHORTEST_KERNEL_S + tile)


def test_a_convolution_runs_at_its_own_peak() -> None:
    """TF32 convolutions of an fp32 run have twice this chip's matrix rate."""
    own = shortest_seconds(product(4096, CONV), CHIP)[0] - SHORTEST_KERNEL_S
    others = shortest_seconds(product(4096), CHIP)[0] - SHORTEST_KERNEL_S
    assert own == pytest.approx(others / 2)


@given(k=st.floats(1, 1e6), more=st.floats(1, 10), batch=st.sampled_from((1.0, 8.0)))
def test_it_grows_with_the_inner_dimension_and_not_with_the_batch(
    k: float, more: float, batch: float
) -> None:
    one = shortest_seconds(product(k, batch=batch), CHIP)[0]
    assert one >= SHORTEST_KERNEL_S
    assert shortest_seconds(product(k * more, batch=batch), CHIP)[0] >= one
    assert one == pytest.approx(shortest_seconds(product(k), CHIP)[0])


def test_a_tile_on_an_a100_takes_what_was_measured() -> None:
    """2.6 ns for each element of the inner dimension in half precision (AIConfigurator)."""
    from forerun.data.device import DeviceCatalog
    from forerun.features.networks.features import chip_of

    chip = chip_of(DeviceCatalog.load().get("a100-sxm-80gb"), "fp16")
    long, short = (shortest_seconds(product(k), chip)[0] for k in (8192, 4096))
    assert (long - short) / 4096 == pytest.approx(2.6e-9, rel=0.6)
