"""The time of a kernel at a small batch, by hand, by law and as measured."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.features.lowering import Kernels
from forerun.features.lowering.kernel_kinds import KERNEL_CODE
from forerun.features.lowering.kernels import Launch, launch
from forerun.features.networks.features import Chip
from forerun.features.networks.kernel_floor import (
    CONVOLUTION_STEP_S,
    PRODUCT_STEP_S,
    SHORTEST_KERNEL_S,
    SMALL_CONVOLUTION_S,
    SMALL_KERNEL_S,
    SMALL_PRODUCT_S,
    TENSOR_TILE,
    VECTOR_TILE,
    small_batch_seconds,
)

CHIP = Chip(
    matrix=100e12, conv=200e12, vector=25e12, bandwidth=1e12, units=100.0, l2_bytes=2**24,
    is_cpu=False,
)  # fmt: skip
SLOW = replace(CHIP, matrix=10e12, conv=20e12, vector=2.5e12)
FAST = replace(CHIP, matrix=1000e12, conv=1000e12, vector=1000e12)
LINEAR = next(name for name in KERNEL_CODE if name.startswith("linear/"))
CONV = next(name for name in KERNEL_CODE if name.startswith("conv/"))


def product(k: float, kind: str = LINEAR, tensor: bool = True, batch: float = 1.0) -> Kernels:
    row = Launch(KERNEL_CODE[kind], work=2.0 * 64 * 64 * k, m=64.0, n=64.0, k=k, tensor=tensor)
    return Kernels.of((row,), batch, 0.0, 0)


def test_what_is_no_product_takes_a_small_kernel() -> None:
    kernels = Kernels.of((launch("elementwise", 1e9), launch("cast", 1.0)), 1.0, 0.0, 0)
    np.testing.assert_array_equal(small_batch_seconds(kernels, CHIP), SMALL_KERNEL_S)
    assert SMALL_KERNEL_S > SHORTEST_KERNEL_S


def test_a_product_on_a_slow_unit_takes_one_tile_more() -> None:
    """On this chip one unit takes longer for a tile than its operands take to arrive."""
    tile = 2 * TENSOR_TILE**2 * 4096 / (SLOW.matrix / SLOW.units)
    start = SMALL_KERNEL_S + SMALL_PRODUCT_S
    assert small_batch_seconds(product(4096), SLOW)[0] == pytest.approx(start + tile)


def test_a_product_on_a_fast_unit_waits_for_its_operands() -> None:
    found = small_batch_seconds(product(4096), FAST)[0]
    waits = 4096 * PRODUCT_STEP_S
    assert found == pytest.approx(SMALL_KERNEL_S + SMALL_PRODUCT_S + waits)
    conv = small_batch_seconds(product(4096, CONV), FAST)[0]
    waits = 4096 * CONVOLUTION_STEP_S
    assert conv == pytest.approx(SMALL_KERNEL_S + SMALL_CONVOLUTION_S + waits)


def test_without_matrix_units_the_tile_and_the_rate_are_smaller() -> None:
    tile = 2 * VECTOR_TILE**2 * 4096 / (SLOW.vector / SLOW.units)
    found = small_batch_seconds(product(4096, tensor=False), SLOW)[0]
    assert found == pytest.approx(SMALL_KERNEL_S + SMALL_PRODUCT_S + tile)


def test_a_convolution_runs_at_its_own_peak() -> None:
    """TF32 convolutions of an fp32 run have twice this chip's matrix rate."""
    start = SMALL_KERNEL_S + SMALL_CONVOLUTION_S
    own = small_batch_seconds(product(4096, CONV), SLOW)[0] - start
    others = small_batch_seconds(product(4096), SLOW)[0] - SMALL_KERNEL_S - SMALL_PRODUCT_S
    assert own == pytest.approx(others / 2)


@given(k=st.floats(1, 1e6), more=st.floats(1, 10), batch=st.sampled_from((1.0, 8.0)))
def test_it_grows_with_the_inner_dimension_and_not_with_the_batch(
    k: float, more: float, batch: float
) -> None:
    one = small_batch_seconds(product(k, batch=batch), CHIP)[0]
    assert one >= SHORTEST_KERNEL_S
    assert small_batch_seconds(product(k * more, batch=batch), CHIP)[0] >= one
    assert one == pytest.approx(small_batch_seconds(product(k), CHIP)[0])


@pytest.mark.parametrize(("label", "batch"), [("mobilenet-v2-050", 1), ("resnet101", 1)])
def test_small_networks_take_what_recorded_ones_took(label: str, batch: int) -> None:
    """The sum over kernels is within a third of the time of recorded networks in inference."""
    from forerun.data.datasets.networks.torch_gpu import TorchGpu
    from forerun.data.device import DeviceCatalog
    from forerun.features.lowering import lowered, lowering_mode
    from forerun.features.networks.features import chip_of
    from forerun.features.published.zoo import read_graphs
    from forerun.features.tables.torch_gpu import gpu_measurements

    dataset = TorchGpu()
    tables = dataset.tidy(dataset.packaged())
    runs = tables["runs"]
    chosen = (runs["label"] == label) & (runs["batch_size"] == batch) & runs["cuda_graph"]
    chosen &= runs["phase"] == "inference"
    half = chosen & runs["precision"].isin(["amp", "amp_bf16", "fp16", "bf16"])
    measured = gpu_measurements(
        runs[half].reset_index(drop=True), read_graphs(tables["graphs"]), DeviceCatalog.load()
    )
    assert len(measured)
    for query, measured_ms in zip(measured.queries, measured.values["latency_ms"], strict=True):
        network = query.network
        kernels = lowered(
            network.graph, lowering_mode(network.graph, network.precision, query.software)
        )
        chip = chip_of(query.device, network.precision)
        found_ms = 1e3 * float((small_batch_seconds(kernels, chip) * kernels.repeat).sum())
        assert found_ms == pytest.approx(measured_ms, rel=0.34)
