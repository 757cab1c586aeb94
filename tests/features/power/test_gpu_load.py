"""Loads of GPUs: shares of the device time, linear in the work, and what a board offers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.features.operators.roofline import is_graphics
from forerun.features.power.gpu_load import (
    gpu_load,
    issue_rate,
    saturating_load,
    used_bandwidth_gbs,
)
from tests.devices import CATALOG, V100


def linear(rows, width):
    return Operator("linear", "fc", ((rows, width),), ((rows, width),), width * width)


def relu(rows, width):
    return Operator("elementwise", "relu", ((rows, width),), ((rows, width),))


@given(st.integers(16, 4096), st.integers(16, 4096))
def test_neither_arithmetic_nor_memory_is_ever_faster_than_its_peak(rows, width):
    load = gpu_load([Query(Kernel(op(rows, width)), V100) for op in (linear, relu)])
    assert (np.maximum(load.arithmetic, load.memory) < 1.0).all()
    assert (np.minimum(load.arithmetic, load.memory) >= 0.0).all()


@given(st.integers(16, 4096), st.integers(16, 4096))
def test_time_is_divided_among_classes_and_units_are_filled_at_most(rows, width):
    load = gpu_load([Query(Kernel(op(rows, width)), V100) for op in (linear, relu)])
    assert load.occupied.sum(axis=1) == pytest.approx(1.0)
    assert (load.filled <= load.occupied + 1e-12).all()


def test_a_network_is_the_mean_of_its_operators_over_time():
    graph = OperatorGraph((linear(512, 1024), relu(512, 1024)), batch_size=512)
    whole = gpu_load([Query(Network(graph, 512), V100)])
    parts = gpu_load([Query(Kernel(op), V100) for op in graph.operators])
    assert whole.device_s[0] == pytest.approx(parts.device_s.sum())
    for name in ("arithmetic", "memory"):
        seconds = (getattr(parts, name) * parts.device_s).sum()
        assert getattr(whole, name)[0] * whole.device_s[0] == pytest.approx(seconds)
    for name in ("occupied", "filled"):
        by_class = (getattr(parts, name) * parts.device_s[:, None]).sum(axis=0)
        assert getattr(whole, name)[0] * whole.device_s[0] == pytest.approx(by_class)


def test_a_faster_memory_than_the_chip_can_use_changes_nothing():
    h100, h200 = CATALOG.get("h100-sxm-80gb"), CATALOG.get("h200-sxm-141gb")
    assert used_bandwidth_gbs(h100) == used_bandwidth_gbs(h200) < h100.bandwidth_gbs
    assert used_bandwidth_gbs(V100) == V100.bandwidth_gbs


def test_units_and_clock_may_be_missing():
    bare = V100.model_copy(update={"compute_units": None, "boost_clock_mhz": None})
    assert issue_rate(V100) == pytest.approx(1.104)
    assert issue_rate(bare) == pytest.approx(issue_rate(V100), rel=0.02)


@pytest.mark.parametrize(
    ("name", "graphics"),
    [("a30", False), ("h20", False), ("b300-sxm-288gb", False), ("a40", True), ("t4", True)],
)
def test_boards_for_graphics_hardly_do_fp64(name, graphics):
    assert is_graphics(CATALOG.get(name)) == graphics


def test_a_device_without_design_power_is_refused():
    device = V100.model_copy(update={"tdp_w": None})
    with pytest.raises(ValueError, match="no TDP"):
        saturating_load([device], 1.0, 0.3)


@pytest.mark.parametrize("name", ["p100-pcie-16gb", "v100-sxm2-32gb", "a100-pcie-80gb", "mi250x"])
def test_a_unit_of_a_board_for_computing_has_64_lanes(name):
    board = CATALOG.get(name)
    bare = board.model_copy(update={"compute_units": None})
    assert issue_rate(bare) == pytest.approx(issue_rate(board), rel=0.06)


def test_a_saturating_load_is_a_product_that_fills_its_gpu():
    load = saturating_load([V100, V100], 0.7, 0.2, 3.0)
    assert len(load) == 2
    assert load.arithmetic.tolist() == [0.7, 0.7]
    assert load.memory.tolist() == [0.2, 0.2], "a V100 uses all of its bandwidth"
    assert load.device_s.tolist() == [3.0, 3.0]
    assert load.occupied[:, 0].tolist() == load.filled.sum(axis=1).tolist() == [1.0, 1.0]
    h200 = saturating_load([CATALOG.get("h200-sxm-141gb")], 0.7, 0.2)
    carried = used_bandwidth_gbs(CATALOG.get("h200-sxm-141gb"))
    assert h200.memory[0] * carried == pytest.approx(0.2 * 4800, rel=1e-3)
    assert np.isnan(load.idle_w).all()
    assert load.tdp_w.tolist() == [250.0, 250.0]


def test_rates_of_one_product_by_hand():
    """2 x 4096^3 FLOPs at 14 TFLOP/s of fp32, 3 x 4096^2 values of four bytes at 900 GB/s."""
    load = gpu_load([Query(Kernel(linear(4096, 4096)), V100)])
    arithmetic_s = 2 * 4096**3 / 14e12
    assert load.device_s[0] == pytest.approx(arithmetic_s / 0.75 + 3e-6)
    assert load.arithmetic[0] * load.device_s[0] == pytest.approx(arithmetic_s)
    memory_s = 3 * 4096**2 * 4 / (V100.bandwidth_gbs * 1e9)
    assert load.memory[0] * load.device_s[0] == pytest.approx(memory_s)
    few = gpu_load([Query(Kernel(relu(1, 1)), V100)]).device_s[0]
    assert 2e-6 < few < 5e-6, "a launch"


def test_without_an_fp32_peak_the_largest_one_stands_in():
    """14 TFLOP/s of whatever arithmetic: 64 lanes, each a multiply-add a cycle."""
    bare = V100.model_copy(
        update={"compute_units": None, "peak_tflops": {"fp64": 7.0, "tf32": 14.0}}
    )
    assert issue_rate(bare) == pytest.approx(14.0 * 10 / 128)
    assert not is_graphics(bare)
    assert is_graphics(bare.model_copy(update={"peak_tflops": {"fp64": 0.5, "fp16": 14.0}}))
