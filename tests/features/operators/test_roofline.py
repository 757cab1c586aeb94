"""The bound: by hand, monotone, and capped by power where chips are known to be."""

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator
from forerun.features.operators.roofline import (
    is_graphics,
    power_capped_tflops,
    roofline_ms,
    sustained_tflops,
    traffic_bytes,
)
from forerun.features.operators.table import OperatorTable
from tests.every import for_every

CATALOG = DeviceCatalog.load()
COPY = OperatorTable.of([Operator("copy", "", ((1024, 1024),), ((1024, 1024),))])


def test_traffic_at_full_bandwidth():
    device = CATALOG.get("v100-pcie-32gb")
    expected = 2 * 4 * 2**20 / (device.memory_bandwidth_gbs * 1e6)
    assert roofline_ms(COPY, device, "fp32")[0] == pytest.approx(expected)
    assert roofline_ms(COPY, device, "fp16")[0] == pytest.approx(expected / 2)


@pytest.mark.parametrize(("name", "share"), [("t4", 0.46), ("p4", 0.49), ("v100-pcie-32gb", 0.96)])
def test_the_power_cap_is_what_was_measured_in_fp32(name, share):
    device = CATALOG.get(name)
    assert power_capped_tflops(device, "fp32") / device.peak("fp32") == pytest.approx(
        share, abs=0.06
    )


@for_every("device", list(CATALOG))
def test_no_device_sustains_more_than_its_peak(device):
    for precision in device.peak_tflops:
        peak = device.peak(precision, matrix=True)
        assert 0 < power_capped_tflops(device, precision) <= peak
        assert 0 < sustained_tflops(device, precision) <= peak


def test_tf32_speeds_up_convolutions_of_fp32_runs_and_nothing_else():
    device = CATALOG.get("a100-sxm-80gb")
    conv = Operator(
        "conv", "aten.convolution", ((8, 512, 56, 56),), ((8, 512, 56, 56),), 512 * 4608
    )
    product = Operator("linear", "aten.mm", ((4096, 4096),), ((4096, 4096),), 4096 * 4096)
    table = OperatorTable.of([conv, product])
    plain = roofline_ms(table, device, "fp32")
    with_tf32 = roofline_ms(table, device, "fp32", tf32_convolutions=True)
    faster = device.peak("tf32", matrix=True) / device.peak("fp32", matrix=True)
    assert plain[0] / with_tf32[0] == pytest.approx(faster, rel=1e-6)
    assert with_tf32[1] == plain[1]
    half = (roofline_ms(table, device, "fp16", tf32_convolutions=t) for t in (False, True))
    np.testing.assert_array_equal(*half)


@pytest.mark.parametrize(
    ("name", "tflops"),
    [("a100-sxm-80gb", 249), ("h100-sxm-80gb", 747), ("b200-sxm-180gb", 1471)],
)
def test_full_rate_parts_sustain_what_was_published(name, tflops):
    """Products in bf16 of AIConfigurator's tables; one share of the peak stands for all."""
    assert sustained_tflops(CATALOG.get(name), "bf16") == pytest.approx(tflops, rel=0.16)


def test_graphics_chips_are_limited_by_their_power_too():
    """L40S: 205 to 253 TFLOP/s in bf16 at 350 W; less a watt on older nodes."""
    l40s = CATALOG.get("l40s")
    assert 205 < sustained_tflops(l40s, "bf16") < 253
    a_watt = {}
    for node in (5.0, 8.0, 12.0):
        chip = l40s.model_copy(update={"process_nm": node, "tdp_w": 100.0})
        a_watt[node] = sustained_tflops(chip, "bf16") / 100.0
    assert a_watt[5.0] == pytest.approx(0.72)
    assert a_watt[5.0] > a_watt[8.0] > a_watt[12.0] > 0.5 * a_watt[5.0]


@pytest.mark.parametrize(
    ("name", "whole"),
    [("b300-sxm-288gb", "b200-sxm-180gb"), ("h800-sxm-80gb", "h100-sxm-80gb")],
)
def test_data_centre_gpus_with_little_fp64_are_not_limited_as_graphics_chips(name, whole):
    few, full = CATALOG.get(name), CATALOG.get(whole)
    assert not is_graphics(few)
    assert sustained_tflops(few, "fp16") == sustained_tflops(full, "fp16")
    pcie = few.model_copy(update={"interconnect_gbs": 64.0})
    assert is_graphics(pcie)
    assert sustained_tflops(pcie, "fp16") < 0.8 * sustained_tflops(full, "fp16")


def test_chips_of_half_matrix_rate_hold_their_peak():
    """GeForce with fp32 accumulation: twice the fp32 rate."""
    device = CATALOG.get("rtx-4090")
    half = device.model_copy(update={"peak_tflops": {"fp32": 80.0, "fp16": 160.0}})
    assert sustained_tflops(half, "fp16") == 160.0
    full = device.model_copy(update={"peak_tflops": {"fp32": 80.0, "fp16": 320.0}})
    assert sustained_tflops(full, "fp16") < 320.0


@pytest.mark.parametrize(("nm", "gflops"), [(12.0, 53.0), (16.0, 37.0)])
def test_energy_of_a_product_falls_with_the_node(nm, gflops):
    """GFLOP/s a watt of fp32 products as measured; matrix units spend an eighth of it."""
    chip = CATALOG.get("v100-pcie-32gb").model_copy(
        update={"process_nm": nm, "tdp_w": 10.0, "peak_tflops": {"fp32": 14.0, "fp16": 112.0}}
    )
    assert power_capped_tflops(chip, "fp32") == pytest.approx(gflops / 100)
    assert power_capped_tflops(chip, "fp16") == pytest.approx(8 * gflops / 100)
    for unknown in ({"process_nm": None}, {"tdp_w": None}):
        assert power_capped_tflops(chip.model_copy(update=unknown), "fp32") == 14.0


def test_an_embedding_reads_the_rows_that_are_looked_up_and_not_its_table():
    few = Operator("embedding", "e", ((8,),), ((8, 64),), parameter_elements=64 * 1_000_000)
    assert traffic_bytes(OperatorTable.of([few]), "fp32")[0] == 4 * (8 + 2 * 8 * 64)
    many = Operator("embedding", "e", ((800,),), ((800, 64),), parameter_elements=64 * 10)
    found = traffic_bytes(OperatorTable.of([many]), "fp32")[0]
    assert found == 4 * (800 + 800 * 64 + 10 * 64)
