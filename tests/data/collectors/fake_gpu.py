"""A GPU that is not there: `pynvml` and `torch.cuda` as far as collectors ask them."""

import time
from contextlib import nullcontext
from types import SimpleNamespace

from forerun.data.collectors.latency import gpu_run as cuda_graph

MIB = 2**20


class FakeClock:
    """Seconds that pass only when somebody sleeps or works by it."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class FakeNvml:
    """NVML of one device whose energy counter moves every 20 ms at a constant power.

    Args:
        power_w: drawn at all times.
        reasons: bits of what slows it.
        lacks: functions that it refuses, as older devices do.
        clock: seconds, by which its energy counter moves.
    """

    class NVMLError(Exception):
        pass

    def __init__(self, power_w=300.0, reasons=0, lacks=(), clock=time.perf_counter):
        self.power_w, self.reasons, self.lacks = power_w, reasons, set(lacks)
        self.used = 600 * MIB
        self.clock, self.start = clock, clock()
        self.opened = []

    def __getattribute__(self, name):
        if name.startswith("nvml") and name in object.__getattribute__(self, "lacks"):
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    def nvmlInit(self):
        pass

    def nvmlDeviceGetHandleByIndex(self, index):
        if index:
            raise self.NVMLError("Invalid Argument")
        self.opened.append(index)
        return "handle"

    def nvmlDeviceGetHandleByUUID(self, uuid):
        self.opened.append(uuid)
        return "handle"

    def nvmlSystemGetDriverVersion(self):
        return b"570.86"

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(used=self.used)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        ticks = int((self.clock() - self.start) / 0.02 + 1e-9)
        return round(1e3 * self.power_w * 0.02 * ticks)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle):
        return 700_000

    def nvmlDeviceGetPowerUsage(self, handle):
        return round(1e3 * self.power_w)

    def nvmlDeviceGetUtilizationRates(self, handle):
        return SimpleNamespace(gpu=80, memory=20)

    def nvmlDeviceGetClockInfo(self, handle, kind):
        return {1: 1980, 2: 2619}[kind]

    def nvmlDeviceGetTemperature(self, handle, kind):
        return 55

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        return self.reasons


class FakeEvent:
    """An event on a device that is done with everything at once."""

    def __init__(self, enable_timing=False):
        self.time = 0.0

    def record(self):
        self.time = time.perf_counter()

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return 1e3 * (end.time - self.time)


def fake_cuda(monkeypatch, capability=(9, 0)):
    """Make `torch.cuda` answer for one GPU of 141 GB whose work is done by the processor."""
    import torch

    answers = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "get_device_name": lambda index=0: "NVIDIA H200",
        "get_device_capability": lambda index=0: capability,
        "synchronize": lambda device=None: None,
        "empty_cache": lambda: None,
        "reset_peak_memory_stats": lambda device=None: None,
        "memory_allocated": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 100 * MIB,
        "max_memory_reserved": lambda device=None: 120 * MIB,
        "_sleep": lambda cycles: None,
        "Event": FakeEvent,
        "device": nullcontext,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)


def fake_graphs(monkeypatch, recording=lambda graph, stream: nullcontext()):
    """Make `torch.cuda` record in the context `recording`; the streams made so far, in a list."""
    import torch

    made = []

    def stream(device=None):
        made.append(SimpleNamespace(wait_stream=lambda other: None))
        return made[-1]

    answers = {
        "Stream": stream,
        "stream": nullcontext,
        "current_stream": lambda: SimpleNamespace(wait_stream=lambda other: None),
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: None),
        "graph": recording,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    cuda_graph._side_stream.cache_clear()
    return made
