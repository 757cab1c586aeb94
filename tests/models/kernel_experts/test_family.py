"""A family: own boosters for devices of the training set, those of similar ones for others."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from forerun.data.device import Device
from forerun.features.llm_kernels.families import kernel_groups
from forerun.features.llm_kernels.table import KernelGroup
from forerun.models.kernel_experts.family import Family, Settings, calibrate
from forerun.models.kernel_experts.llm_kernels import PARAMETERS
from tests.models.kernel_experts.rows import CATALOG, kernels, timed

FACTORS = {"a100-sxm-80gb": 1.6, "h100-sxm-80gb": 1.0, "l40s": 0.7}


def products(name: str, seed: int = 0, count: int = 200) -> KernelGroup:
    """Products on one device."""
    groups = kernel_groups(kernels(name, count, seed))
    return next(group for group in groups if group.family == "gemm/bf16")


def fit(_: str, parts: list[KernelGroup], trees: int = 20) -> Family:
    return Family.fit(parts, Settings(trees, PARAMETERS), 0)


def rows(name: str, factor: float = 1.0) -> KernelGroup:
    """Products whose times have a factor of the device."""
    group = products(name)
    times = timed(kernels(name), factor).values["latency_ms"][group.rows] / 1e3
    return replace(group, log_values=np.log(times))


@lru_cache(maxsize=1)
def fitted() -> Family:
    """A family in which each device has a factor of its own."""
    return fit("", [rows(n, f) for n, f in FACTORS.items()], 40)


def factor(device: Device) -> float:
    """Median of the times on a device over those of the rule without a factor."""
    group = products(device.name, seed=3)
    truth = timed(kernels(device.name, seed=3)).values["latency_ms"][group.rows] / 1e3
    return float(np.median(np.exp(fitted().log_values(group)) / truth))


@pytest.mark.parametrize("name", FACTORS)
def test_a_training_device_takes_its_own_booster(name):
    assert factor(CATALOG.get(name)) == pytest.approx(FACTORS[name], rel=0.1)
    assert fitted().distance(products(name)) == 0.0


def test_another_device_takes_that_of_the_most_similar_sheet():
    """A GH200 is nearest to the H100, an L4 to the L40S."""
    assert factor(CATALOG.get("gh200-96gb")) == pytest.approx(FACTORS["h100-sxm-80gb"], rel=0.15)
    assert factor(CATALOG.get("l4")) == pytest.approx(FACTORS["l40s"], rel=0.15)
    near, far = (fitted().distance(products(name)) for name in ("gh200-96gb", "h20"))
    assert 0.0 < near < far


def test_bounds_have_no_sign_and_are_wider_for_devices_that_differ():
    """Each device has a factor of 0.7 to 1.6, so another one is known to that factor at best."""
    bounds, common = calibrate({"gemm/bf16": [rows(n, f) for n, f in FACTORS.items()]}, fit, 0)
    alike, _ = calibrate({"gemm/bf16": [rows(n) for n in FACTORS]}, fit, 0)
    low, high = bounds.unseen.bounds["gemm/bf16"]
    assert low == pytest.approx(-high)
    assert high > 2.0 * alike.unseen.bounds["gemm/bf16"][1]
    assert bounds.seen.bounds["gemm/bf16"][1] < 0.3
    assert common[0] < 0.5 < common[1], "a factor of the device is common to its kernels"


def test_fewer_held_out_devices_widen_the_bounds():
    """The same errors on two devices say less of the next device than on six."""
    two = [rows("a100-sxm-80gb", 1.3), rows("l40s", 0.8)]
    few, many = (calibrate({"gemm/bf16": parts}, fit, 0)[0] for parts in (two, two * 3))
    assert few.unseen.bounds["gemm/bf16"][1] > many.unseen.bounds["gemm/bf16"][1]
