"""Memory, power, energy, clocks, temperature and throttling of an NVIDIA GPU through NVML.

Uses the package nvidia-ml-py. Values that a device does not support are None. The energy counter
moves every 20 to 100 ms, so energy is measured between two of its steps; power and utilisation are
means over up to the last second, so samples of the first second are left out.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from statistics import fmean
from typing import Any

MIB = 2**20
AVERAGED_S = 1.0
"""Seconds before a sample over which power and utilisation are averaged, at most."""
WAITS_S = 0.1
"""Seconds of two typical waits for a step of the energy counter."""
POWER_CAP = 0x4
SLOWED: Mapping[int, str] = {
    0x8: "hardware slowdown",
    0x20: "thermal, by software",
    0x40: "thermal, by hardware",
    0x80: "power brake",
}
"""Throttling reasons other than the device's own power limit: such a run is `throttled`."""
_SM, _MEMORY = 1, 2
_GPU_TEMPERATURE = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of a device; None where it reports no value."""

    power_w: float | None
    sm_mhz: float | None
    memory_mhz: float | None
    temperature_c: float | None
    utilisation: float | None
    reasons: int | None


@dataclass(frozen=True)
class Nvml:
    """One device.

    Attributes:
        library: the module `pynvml`, initialised.
        handle: NVML's handle of the device.
    """

    library: Any
    handle: Any

    @classmethod
    def visible(cls, index: int = 0) -> "Nvml | str":
        """The device that CUDA numbers `index`, or the reason why there is none.

        CUDA counts those that CUDA_VISIBLE_DEVICES lists, by number or UUID, where it is set.
        """
        try:
            import pynvml
        except ImportError:
            return "the package nvidia-ml-py is not installed"
        library: Any = pynvml
        listed = [n.strip() for n in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
        named = listed[index] if listed != [""] and index < len(listed) else str(index)
        try:
            library.nvmlInit()
            if named.isdigit():
                return cls(library, library.nvmlDeviceGetHandleByIndex(int(named)))
            return cls(library, library.nvmlDeviceGetHandleByUUID(named))
        except library.NVMLError as error:
            return f"NVML: {error}"

    def used_mib(self) -> float | None:
        """Memory in use on the device by all processes, as nvidia-smi shows it."""
        found = self._ask("nvmlDeviceGetMemoryInfo")
        return None if found is None else found.used / MIB

    def energy_j(self) -> float | None:
        """Energy counter of the device, joules; None where it has none."""
        found = self._ask("nvmlDeviceGetTotalEnergyConsumption")
        return None if found is None else found / 1e3

    def power_limit_w(self) -> float | None:
        """Power limit in force, watts; None where it is not reported."""
        found = self._ask("nvmlDeviceGetEnforcedPowerLimit")
        return None if found is None else found / 1e3

    def driver(self) -> str | None:
        """Version of the driver."""
        try:
            found = self.library.nvmlSystemGetDriverVersion()
        except self.library.NVMLError:
            return None
        return found.decode() if isinstance(found, bytes) else str(found)

    def sample(self) -> Sample:
        """One sample; what changes fastest is read first."""
        reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if reasons is None:
            reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        sm_mhz = self._ask("nvmlDeviceGetClockInfo", _SM)
        memory_mhz = self._ask("nvmlDeviceGetClockInfo", _MEMORY)
        power = self._ask("nvmlDeviceGetPowerUsage")
        busy = self._ask("nvmlDeviceGetUtilizationRates")
        return Sample(
            power_w=None if power is None else power / 1e3,
            sm_mhz=sm_mhz,
            memory_mhz=memory_mhz,
            temperature_c=self._ask("nvmlDeviceGetTemperature", _GPU_TEMPERATURE),
            utilisation=None if busy is None else busy.gpu / 100,
            reasons=reasons,
        )

    def _ask(self, function: str, *arguments: int) -> Any:
        call = getattr(self.library, function, None)
        if call is None:
            return None
        try:
            return call(self.handle, *arguments)
        except self.library.NVMLError:
            return None


def looks(samples: Sequence[Sample]) -> dict[str, Any]:
    """Columns of some samples: mean clocks, the highest temperature, and reasons for throttling.

    `clock_reasons` holds NVML's bits of all samples combined; `throttle` names those other than the
    device's own power limit.
    """
    reported = [sample.reasons for sample in samples if sample.reasons is not None]
    seen, warm = reduce(or_, reported, 0), [sample.temperature_c for sample in samples]
    return {
        "sm_clock_mhz": _mean(s.sm_mhz for s in samples),
        "memory_clock_mhz": _mean(s.memory_mhz for s in samples),
        "temperature_c": max((t for t in warm if t is not None), default=None),
        "clock_reasons": seen if reported else None,
        "power_capped_share": _mean(bool(reasons & POWER_CAP) for reasons in reported),
        "throttle": ", ".join(text for bit, text in SLOWED.items() if seen & bit) or None,
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


@dataclass
class Watch:
    """Samples of a device, taken by a thread inside a `with` block.

    Attributes:
        device: the device that is sampled.
        every_s: seconds between samples.
        samples: samples, in the order they were taken.
    """

    device: Nvml
    every_s: float = 0.05
    samples: list[Sample] = field(default_factory=list)
    _settled: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "Watch":
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _look(self) -> None:
        start = time.perf_counter()
        while not self._over.is_set():
            self._settled += time.perf_counter() - start < AVERAGED_S
            self.samples.append(self.device.sample())
            self._over.wait(self.every_s)

    def columns(self) -> dict[str, Any]:
        """Columns of `looks`, mean power and utilisation; null in a window below `AVERAGED_S`."""
        settled = self.samples[self._settled :]
        return {
            "sampled_power_w": _mean(s.power_w for s in settled),
            "utilisation": _mean(s.utilisation for s in settled),
            **looks(self.samples),
        }


@dataclass(frozen=True, slots=True)
class PowerWindow:
    """Energy of runs between two steps of the counter.

    Attributes:
        seconds: shortest window.
        warm_up_s: seconds of runs before it.
        rest_s: idle seconds before those.
        step_s: longest wait for a step; a counter that stands still for it is taken as absent.
        clock: seconds.
    """

    seconds: float
    warm_up_s: float = 0.0
    rest_s: float = 0.0
    step_s: float = 0.5
    clock: Callable[[], float] = time.perf_counter

    @property
    def total_s(self) -> float:
        """Seconds of rest, warm-up, window, and two typical waits for the counter."""
        return self.rest_s + self.warm_up_s + self.seconds + WAITS_S

    def measure(self, batch: Callable[[], int], device: Nvml) -> dict[str, Any]:
        """Run batches until the window ends.

        Args:
            batch: runs some milliseconds of work to its end and returns the number of runs.
            device: the device whose counter and samples are read.

        Returns:
            `energy_j` of one run, `power_w`, `queued_ms` (wall time of one run where many follow
            each other), `power_window_s`, and the columns of `Watch`.
        """
        time.sleep(self.rest_s)
        self._run(batch, self.warm_up_s)
        with Watch(device) as watch:
            has_counter = device.energy_j() is not None
            start_j, _ = self._step(batch, device) if has_counter else (None, 0)
            start = self.clock()
            runs = self._run(batch, self.seconds) or batch()
            end_j, more = self._step(batch, device) if has_counter else (None, 0)
            runs, took = runs + more, self.clock() - start
        row = watch.columns() | {"queued_ms": 1e3 * took / runs, "power_window_s": took}
        power = row["sampled_power_w"]
        row["power_source"] = "samples"
        if start_j is not None and end_j is not None and end_j > start_j:
            power, row["power_source"] = (end_j - start_j) / took, "energy counter"
        if not power:
            short = any(sample.power_w for sample in watch.samples)
            why = (
                "samples of power need a longer window" if short else "the device reports no power"
            )
            return row | {"power_source": None, "energy_reason": why}
        return row | {"power_w": power, "energy_j": power * took / runs}

    def _run(self, batch: Callable[[], int], seconds: float) -> int:
        """Run batches for some seconds; returns the number of runs."""
        start, runs = self.clock(), 0
        while self.clock() - start < seconds:
            runs += batch()
        return runs

    def _step(self, batch: Callable[[], int], device: Nvml) -> tuple[float | None, int]:
        """Run until the counter moves; returns its new value and the number of runs."""
        before, start, runs = device.energy_j(), self.clock(), 0
        while self.clock() - start < self.step_s:
            runs += batch()
            now = device.energy_j()
            if now != before:
                return now, runs
        return None, runs
