"""Figures of a device: what its sheet says, what is estimated, and what lasts."""

import numpy as np
import pytest

from forerun.data.device import Device, DeviceCatalog
from forerun.features.chips import chip_of, device_ratios


def test_half_precision_runs_on_matrix_units_and_fp32_does_not_on_geforce() -> None:
    device = DeviceCatalog.load().get("rtx-4090")
    assert chip_of(device, "amp").matrix == pytest.approx(
        2 * chip_of(device, "fp32").matrix, rel=0.05
    )
    assert chip_of(device, "amp").vector == chip_of(device, "fp32").vector


def test_missing_units_and_clock_are_those_of_a_usual_gpu() -> None:
    """20 TFLOP/s of fp32, 256 operations a unit and cycle: near 52 units at 1.5 GHz."""
    bare = Device(
        name="bare", vendor="nobody", kind="gpu", memory_bandwidth_gbs=1000,
        peak_tflops={"fp32": 20, "fp16": 80},
    )  # fmt: skip
    chip = chip_of(bare, "amp")
    gpus = [d for d in DeviceCatalog.load() if d.kind == "gpu" and d.l2_mib and d.compute_units]
    assert chip.units == pytest.approx(20e12 / 1.5e9 / 256, rel=0.2)
    cache = np.median([d.l2_mib * 2**20 / d.compute_units for d in gpus])
    assert chip.l2_bytes / chip.units == pytest.approx(cache, rel=0.3)
    assert chip.bandwidth == 1e12
    assert chip.vector == 20e12
    assert np.exp(device_ratios(chip)[:2]) == pytest.approx(
        [chip.matrix / 1e12, chip.matrix / 20e12]
    )


def test_convolutions_of_fp32_runs_use_tf32_where_there_is_one() -> None:
    """As PyTorch's `cudnn.allow_tf32`: 156 of 19.5 TFLOP/s on an A100, of which 75 % last."""
    a100, v100 = (DeviceCatalog.load().get(n) for n in ("a100-sxm-80gb", "v100-pcie-32gb"))
    assert chip_of(a100, "fp32").conv == pytest.approx(0.75 * 156e12)
    assert chip_of(a100, "fp32").matrix == pytest.approx(19.5e12)
    assert chip_of(v100, "fp32").conv == chip_of(v100, "fp32").matrix
