"""Measure a block of one's own code on this machine, and compare it with a prediction."""

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean
from types import TracebackType
from typing import Any, Self, Unpack

from forerun.data.collectors.runner.stopwatch import Timing, summary
from forerun.data.collectors.system.host import resident_mib
from forerun.data.collectors.system.nvml import Nvml
from forerun.data.device import Device
from forerun.data.errors import InputError
from forerun.service.answers.answer import answer_of
from forerun.service.answers.question import question_about
from forerun.service.answers.verification import local_cpu
from forerun.service.python.answer import Answer
from forerun.service.python.own_measurements import verifying
from forerun.service.python.own_measurements.adapting import Adaptation, adapt
from forerun.service.python.question import Asked, asked_about
from forerun.service.python.run_options import RunOptions
from forerun.service.python.session import DeviceLike, session
from forerun.service.python.view import Estimate, View, Viewed, text_of
from forerun.service.schemas.measured_rows import MeasuredRow
from forerun.service.schemas.workloads import workload_in
from forerun.service.stores.device_sheets import local_device

SAMPLE_S = 0.1
"""Seconds from one sample of memory and power to the next."""


@dataclass(frozen=True, slots=True)
class HostSample:
    """The state of this machine at one moment; None where it is not reported.

    Attributes:
        time_s: seconds since the block began.
        resident_mib: resident memory of this process.
        gpu_power_w: power of the GPU.
        gpu_memory_mib: memory in use on the GPU, by all processes.
        gpu_utilisation: share of the time the GPU was busy.
    """

    time_s: float
    resident_mib: float | None
    gpu_power_w: float | None = None
    gpu_memory_mib: float | None = None
    gpu_utilisation: float | None = None


class Measurement(Viewed):
    """A block of code, measured; figures are there when the block has ended.

    Use as a context manager. Without `repeat` the block is one run.

    Args:
        name: name of the block, for headings.
        asked: the workload that the block runs; None where nothing is predicted.
        device: the device that it runs on.
        gpu: the GPU whose power and memory are sampled; None for none.
    """

    def __init__(
        self,
        name: str,
        asked: Asked | None,
        device: Device,
        gpu: Nvml | None = None,
    ) -> None:
        self.name, self.device = name, device
        self.runs_s: list[float] = []
        self.samples: tuple[HostSample, ...] = ()
        self.predicted: Answer | None = None
        self.not_predicted: str | None = None
        self._asked, self._gpu = asked, gpu
        self._timing: Timing | None = None
        self._sampler: _Sampler | None = None
        self._start = 0.0

    def __enter__(self) -> Self:
        self._sampler = _Sampler(self._gpu)
        self._sampler.start()
        self._start = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _wait_for_gpu()
        whole_s = time.perf_counter() - self._start
        assert self._sampler is not None
        self.samples = self._sampler.stop()
        if kind is not None:
            return
        times = self.runs_s or [whole_s]
        self._timing = summary(times, sum(times))
        self._predict()

    def repeat(self, count: int, warm_up: int = 0) -> Iterator[int]:
        """Time every pass of a loop as a run, in place of the whole block.

        Args:
            count: runs that count.
            warm_up: runs before them that do not.

        Yields:
            The number of the run, from 0; negative for warm-up.

        Raises:
            InputError: there is no run that counts.
        """
        if count < 1 or warm_up < 0:
            raise InputError(f"repeat({count}, warm_up={warm_up}): at least one run must count.")
        for number in range(-warm_up, count):
            _wait_for_gpu()
            start = time.perf_counter()
            yield number
            _wait_for_gpu()
            if number >= 0:
                self.runs_s.append(time.perf_counter() - start)

    @property
    def latency_ms(self) -> float:
        """Median wall time of a run, milliseconds.

        Raises:
            InputError: the block has not ended.
        """
        return self._ended().median_ms

    @property
    def spread(self) -> float:
        """Interquartile range of the runs over their median; 0 for a single run."""
        return self._ended().spread

    @property
    def peak_resident_mib(self) -> float | None:
        """Largest sample of this process's resident memory, MiB; None where not reported."""
        return max(_known(self.samples, "resident_mib"), default=None)

    @property
    def gpu_power_w(self) -> float | None:
        """Mean of the samples of the GPU's power, W; None without a GPU."""
        powers = list(_known(self.samples, "gpu_power_w"))
        return fmean(powers) if powers else None

    @property
    def gpu_peak_memory_mib(self) -> float | None:
        """Largest sample of the memory in use on the GPU, MiB; None without a GPU."""
        return max(_known(self.samples, "gpu_memory_mib"), default=None)

    @property
    def metrics(self) -> Mapping[str, float]:
        """Measured values by metric; memory and power are those of the GPU, where it is one."""
        found = {"latency_ms": self.latency_ms}
        if self.device.kind == "gpu":
            known = {"peak_memory_mib": self.gpu_peak_memory_mib, "power_w": self.gpu_power_w}
            found |= {name: value for name, value in known.items() if value}
        return found

    @property
    def measurements(self) -> list[MeasuredRow]:
        """The measurement as `forerun.adapt` takes it.

        Raises:
            InputError: the block has not ended, or no network was named.
        """
        if self._asked is None or self._asked.graph is None:
            raise InputError("Only a network can be adapted to; name it by model=.")
        query = self._asked.query(self.device)
        workload = workload_in(query.run).model_dump(mode="json")
        return [
            MeasuredRow.model_validate(
                {
                    "workload": workload | {"graph": self._asked.graph.to_json()},
                    "software": query.software,
                    "metrics": dict(self.metrics),
                    "spread": min(self.spread, 100.0),
                }
            )
        ]

    def ratio(self, metric: str = "latency_ms") -> float | None:
        """Measured over predicted value; None where one of them is not known."""
        compared = self._compared(metric)
        return None if compared is None else compared.ratio

    def inside(self, metric: str = "latency_ms") -> bool | None:
        """Whether the prediction interval holds the measured value; None without either."""
        compared = self._compared(metric)
        return None if compared is None else compared.inside

    def adapt(self) -> Adaptation:
        """Adapt the predictor to this measurement, and register the device if it is new.

        Raises:
            InputError: no predictor can learn from it.
        """
        rows = self.measurements
        local_device(session().devices, self.device.name, lambda name: self.device)
        return adapt(rows, device=self.device.name)

    def records(self) -> Iterator[Mapping[str, Any]]:
        """One row per measured metric."""
        for name, value in self.metrics.items():
            yield {"metric": name, "measured": value, **verifying.columns_of(self._compared(name))}

    def view(self) -> View:
        """One row per measured metric, with its prediction."""
        rows = []
        for name, value in self.metrics.items():
            estimate = self._estimate(name)
            predicted, *others = verifying.words_of(self._compared(name), name)
            interval = estimate.interval_text() if estimate else ""
            rows.append([name, text_of(name, value), predicted, interval, *others])
        runs = max(1, len(self.runs_s))
        lines = [f"{runs} runs, spread {100 * self.spread:.1f} %"]
        if self.peak_resident_mib is not None:
            lines.append(f"resident memory of this process: {self.peak_resident_mib:,.0f} MiB")
        if self.not_predicted is not None:
            lines.append(f"not predicted: {self.not_predicted}")
        headings = ("", "measured", "predicted", "90 % interval", "ratio", "inside")
        return View(f"{self.name} on {self.device.name}", headings, rows, lines)

    def _compared(self, metric: str) -> verifying.Compared | None:
        measured = self.metrics.get(metric)
        return None if measured is None else verifying.Compared.of(self._estimate(metric), measured)

    def _estimate(self, metric: str) -> Estimate | None:
        return None if self.predicted is None else self.predicted.metrics.get(metric)

    def _ended(self) -> Timing:
        if self._timing is None:
            raise InputError(f"The block {self.name!r} has not ended, so nothing is known of it.")
        return self._timing

    def _predict(self) -> None:
        if self._asked is None:
            self.not_predicted = "no model was named"
            return
        query = self._asked.query(self.device)
        try:
            out = answer_of(question_about(query), session().in_use)
        except InputError as error:
            self.not_predicted = str(error)
            return
        self.predicted = Answer.of(out, model=self._asked.name, query=query)


def measure(
    name: str = "block",
    *,
    model: Any = None,
    device: DeviceLike | None = None,
    gpu: int | None = None,
    **run: Unpack[RunOptions],
) -> Measurement:
    """Time a block of code on this machine, and compare it with the prediction.

    Args:
        name: name of the block, for headings.
        model: the network that the block runs, as in `predict`; nothing is predicted when None.
        device: the device that it runs on; this machine's processor when None.
        gpu: index of the NVIDIA GPU whose power and memory are sampled; the first, where there is
            one, when None and the device is a GPU.
        **run: options of the run, as in `predict`.

    Raises:
        InputError: the model or an option is not valid, or there is no such GPU.

    Example:
        >>> import forerun
        >>> with forerun.measure("step", model="model.onnx", batch_size=8) as step:
        ...     for _ in step.repeat(20, warm_up=3):
        ...         sum(range(1000))  # here goes what the model does
        >>> print(step)
    """
    here = session()
    asked = None if model is None else asked_about(model, run, here)
    sheet = local_cpu(verifying.MY_CPU, here.devices) if device is None else here.device(device)
    return Measurement(name, asked, sheet, _sampled_gpu(sheet, gpu))


def _sampled_gpu(device: Device, index: int | None) -> Nvml | None:
    if index is None and device.kind != "gpu":
        return None
    found = Nvml.visible(index or 0)
    if isinstance(found, Nvml):
        return found
    if index is not None:
        raise InputError(f"gpu {index} cannot be read: {found}.")
    return None


def _wait_for_gpu() -> None:
    """Wait until the GPU has done what torch gave it, where this process uses one."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _known(samples: tuple[HostSample, ...], name: str) -> Iterator[float]:
    for sample in samples:
        value = getattr(sample, name)
        if value is not None:
            yield value


class _Sampler:
    """Samples memory and power in a thread until it is stopped, twice at least."""

    def __init__(self, gpu: Nvml | None) -> None:
        self._gpu, self._stopped = gpu, threading.Event()
        self._samples: list[HostSample] = []
        self._start = time.perf_counter()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Take the first sample and begin."""
        self._take()
        self._thread.start()

    def stop(self) -> tuple[HostSample, ...]:
        """Take the last sample; all samples by time."""
        self._stopped.set()
        self._thread.join()
        self._take()
        return tuple(self._samples)

    def _run(self) -> None:
        while not self._stopped.wait(SAMPLE_S):
            self._take()

    def _take(self) -> None:
        now, resident = time.perf_counter() - self._start, resident_mib()
        if self._gpu is None:
            self._samples.append(HostSample(now, resident))
            return
        seen = self._gpu.sample()
        used = self._gpu.used_mib()
        self._samples.append(HostSample(now, resident, seen.power_w, used, seen.utilisation))
