"""What a GPU tells of itself, energy between two steps of its counter, and what it does not."""

import sys
import time

import pytest

from forerun.data.collectors.nvml import Nvml, PowerWindow
from tests.data.collectors.fake_gpu import FakeNvml


def batch():
    time.sleep(0.01)
    return 5


def measured(library, seconds=0.1):
    return PowerWindow(seconds, step_s=0.2).measure(batch, Nvml(library, "handle"))


def test_power_is_energy_over_the_time_between_two_steps_of_the_counter():
    row = measured(FakeNvml(power_w=300))
    assert row["power_w"] == pytest.approx(300, rel=0.3)
    assert row["power_source"] == "energy counter"
    assert row["power_window_s"] >= 0.1
    assert row["energy_j"] == pytest.approx(row["power_w"] * row["queued_ms"] / 1e3)


def test_clocks_and_temperature_stand_beside_it():
    row = measured(FakeNvml())
    assert row["sm_clock_mhz"] == 1980
    assert row["temperature_c"] == 55
    assert row["utilisation"] == pytest.approx(0.8)
    assert row["throttle"] is None


def test_a_device_without_the_counter_is_sampled():
    row = measured(FakeNvml(power_w=250, lacks={"nvmlDeviceGetTotalEnergyConsumption"}))
    assert row["power_source"] == "samples"
    assert row["power_w"] == pytest.approx(250)


def test_a_device_that_tells_no_power_has_none_and_says_why():
    silent = {"nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPowerUsage"}
    row = measured(FakeNvml(lacks=silent))
    assert "power_w" not in row
    assert "no power" in row["energy_reason"]


def test_a_limit_of_its_own_is_not_throttling_but_heat_is():
    assert measured(FakeNvml(reasons=0x4))["throttle"] is None
    assert measured(FakeNvml(reasons=0x4))["power_capped_share"] == 1
    assert measured(FakeNvml(reasons=0x40 | 0x1))["throttle"] == "thermal, by hardware"


def test_the_device_is_the_one_that_cuda_counts(monkeypatch):
    library = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-abc,0")
    assert isinstance(Nvml.visible(0), Nvml)
    assert isinstance(Nvml.visible(1), Nvml)
    assert library.opened == ["GPU-abc", 0]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert Nvml.visible(0) == "NVML: Invalid Argument"


def test_without_the_package_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "nvidia-ml-py" in Nvml.visible()
