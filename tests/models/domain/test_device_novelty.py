"""Novelty of devices: 0 for known ones, increasing with distance, independent of names."""

import numpy as np
import pytest

from forerun.models.domain.device_novelty import (
    NOVEL,
    device_position,
    distance,
    novelty_limits,
    novelty_of,
)
from tests.devices import CATALOG

KNOWN = [CATALOG.get(name) for name in ("p100-pcie-16gb", "v100-pcie-32gb", "a100-pcie-40gb")]


def device_novelty(device, known):
    return novelty_of(device_position(device), map(device_position, known))


def test_a_known_device_is_not_novel():
    assert all(device_novelty(device, KNOWN) == 0.0 for device in KNOWN)


def test_without_known_devices_novelty_is_infinite():
    assert device_novelty(CATALOG.get("t4"), []) == float("inf")


def test_a_gpu_with_other_matrix_units_is_novel():
    known = [device_position(CATALOG.get("p100-pcie-16gb"))]
    (line,) = novelty_limits(CATALOG.get("t4"), known)
    assert "differs from those of the training set" in line.message
    assert line.value > line.high == NOVEL
    assert novelty_limits(CATALOG.get("t4"), [*known, device_position(CATALOG.get("t4"))]) == ()


def test_a_position_is_three_ratios_of_the_sheet():
    """V100 in PCI express: 112 of 14 TFLOP/s, 900 GB/s, and 250 W that sustain 95 %."""
    v100 = CATALOG.get("v100-pcie-32gb")
    gain, sustained, ridge = np.exp(device_position(v100))
    assert gain == pytest.approx(112 / 14)
    assert ridge == pytest.approx(14e12 / (v100.bandwidth_gbs * 1e9))
    assert sustained == pytest.approx(0.96, abs=0.06)
    single = v100.model_copy(update={"peak_tflops": {"fp32": 14.0}})
    assert device_position(single)[0] == 0.0
    bf16 = v100.model_copy(update={"peak_tflops": {"fp32": 14.0, "fp16": 28.0, "bf16": 56.0}})
    assert np.exp(device_position(bf16)[0]) == pytest.approx(4.0)


def test_distance_by_hand():
    """Half as far in the first ratio as its unit, and twice the unit in the third."""
    zero, far = np.zeros(3), np.array([0.25, 0.0, 1.0])
    assert distance(zero, far) == pytest.approx(np.hypot(0.5, 2.0))
    assert distance(zero, far, np.ones(3)) == pytest.approx(np.hypot(0.25, 1.0))


def test_a_gpu_is_novel_from_a_distance_of_one():
    t4 = CATALOG.get("t4")
    for away, lines in ((0.99, 0), (1.01, 1)):
        known = device_position(t4) + np.array([0.5 * away, 0.0, 0.0])
        assert len(novelty_limits(t4, [known])) == lines
    assert novelty_limits(t4, []) == ()
