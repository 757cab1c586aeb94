"""The bound: by hand, monotone, and capped by power where chips are known to be."""

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator
from forerun.features.operators.roofline import power_capped_tflops, roofline_ms, sustained_tflops
from forerun.features.operators.table import OperatorTable

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


@pytest.mark.parametrize("device", list(CATALOG), ids=lambda d: d.name)
def test_no_device_sustains_more_than_its_peak(device):
    for precision in device.peak_tflops:
        peak = device.peak(precision, matrix=True)
        assert 0 < power_capped_tflops(device, precision) <= peak
        assert 0 < sustained_tflops(device, precision) <= peak


def test_the_bound_grows_with_bytes_and_flops():
    device = CATALOG.get("a10")
    sizes = [128, 256, 512, 4096]
    linear = OperatorTable.of([Operator("linear", "", ((s, s),), ((s, s),), s * s) for s in sizes])
    times = roofline_ms(linear, device, "fp16")
    assert (np.diff(times) > 0).all()


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
