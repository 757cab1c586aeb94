"""What a GPU tells of itself, energy between two steps of its counter, and what it does not."""

import sys
import time
from types import SimpleNamespace

import pytest

from forerun.data.collectors.system import nvml
from forerun.data.collectors.system.nvml import Nvml, PowerWindow, looks
from tests.data.collectors.fake_gpu import FakeClock, FakeNvml


def batch():
    time.sleep(0.01)
    return 5


def measured(library, seconds=0.1):
    return PowerWindow(seconds, step_s=0.2).measure(batch, Nvml(library, "handle"))


def by_the_clock(clock, run=None, **window):
    """A window of 50 ms on a device and batches of 10 ms that all keep one clock."""

    def work():
        if run is not None:
            run()
        clock.sleep(0.01)
        return 5

    device = Nvml(FakeNvml(clock=clock), "handle")
    return PowerWindow(0.05, clock=clock, **window).measure(work, device)


def test_power_is_energy_over_the_time_between_two_steps_of_the_counter():
    row = by_the_clock(FakeClock())
    assert row["power_w"] == pytest.approx(300, rel=1e-6)
    assert row["power_source"] == "energy counter"
    assert row["power_window_s"] == pytest.approx(0.06), "to the next step of 20 ms"
    assert row["energy_j"] == pytest.approx(row["power_w"] * row["queued_ms"] / 1e3)


def test_clocks_and_temperature_are_reported_with_it():
    row = measured(FakeNvml())
    assert row["sm_clock_mhz"] == 1980
    assert row["temperature_c"] == 55
    assert row["clock_reasons"] == 0
    assert row["throttle"] is None


WITHOUT_COUNTER = {"nvmlDeviceGetTotalEnergyConsumption"}


def test_a_device_without_the_counter_is_sampled(monkeypatch):
    monkeypatch.setattr(nvml, "AVERAGED_S", 0.03)
    row = measured(FakeNvml(power_w=250, lacks=WITHOUT_COUNTER))
    assert row["power_source"] == "samples"
    assert row["power_w"] == pytest.approx(250)
    assert row["utilisation"] == pytest.approx(0.8)


def test_below_a_second_only_the_counter_counts():
    row = measured(FakeNvml(power_w=300))
    assert row["power_source"] == "energy counter"
    assert row["sampled_power_w"] is None
    assert row["utilisation"] is None
    row = measured(FakeNvml(lacks=WITHOUT_COUNTER))
    assert "power_w" not in row
    assert "longer window" in row["energy_reason"]


def test_a_window_begins_after_a_rest_and_a_warm_up(monkeypatch):
    clock, starts = FakeClock(), []
    monkeypatch.setattr(nvml, "time", SimpleNamespace(sleep=clock.sleep, perf_counter=clock))
    row = by_the_clock(clock, lambda: starts.append(clock()), warm_up_s=0.1, rest_s=0.1)
    assert starts[0] == pytest.approx(0.1)
    assert starts[-1] == pytest.approx(0.2 + 0.02 + row["power_window_s"] - 0.01)
    assert row["power_window_s"] == pytest.approx(0.06)
    assert row["queued_ms"] == pytest.approx(2)


def test_a_device_that_does_not_tell_why_it_slows_has_null():
    names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    row = looks([Nvml(FakeNvml(lacks=set(names)), "handle").sample()])
    assert (row["clock_reasons"], row["power_capped_share"], row["throttle"]) == (None, None, None)


def test_a_device_that_tells_no_power_has_none_and_says_why():
    silent = {"nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPowerUsage"}
    row = measured(FakeNvml(lacks=silent))
    assert "power_w" not in row
    assert "no power" in row["energy_reason"]


def test_a_limit_of_its_own_is_not_throttling_but_heat_is():
    assert measured(FakeNvml(reasons=0x4))["throttle"] is None
    assert measured(FakeNvml(reasons=0x4))["power_capped_share"] == 1
    hot = measured(FakeNvml(reasons=0x40 | 0x1))
    assert (hot["throttle"], hot["clock_reasons"]) == ("thermal, by hardware", 0x41)


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
