"""One trial on an NVIDIA GPU: latency by events, memory at three levels, power, clocks.

Memory is that of running, without what building took; a library's workspace is part of it. A run of
an operator is short compared to its launch, so `latency_ms`, of one synchronised run, is often the
host's time; `kernel_ms` is the GPU's alone, of runs that were queued before the first one began.
A run may be recorded as one CUDA graph, so that the GPU does not wait for launches.
"""

import gc
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from forerun.data.collectors.latency.gpu_plan import Pacing
from forerun.data.collectors.runner.collector import Broken
from forerun.data.collectors.runner.trial import Row, Trial
from forerun.data.collectors.system.nvml import MIB, Nvml, looks
from forerun.data.graph import Operator
from forerun.data.lazy import torch

Run = Callable[[], object]
WARM_UP_RUNS = 3
"""Runs before recording: libraries choose algorithms and allocate workspaces in the first ones."""


class RecordingFailed(Exception):
    """A recording broke off, after which the process cannot record others."""


def recorded(run: Run, device: str) -> Run:
    """The run as one CUDA graph.

    Args:
        run: work to record; it must neither wait for the GPU nor read from it.
        device: `cuda:0`, ...

    Raises:
        RecordingFailed: the recording broke off; errors of the runs before it are raised as such.
    """
    side = _side_stream(device)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP_RUNS):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, stream=side):
            kept = run()
    except Exception as error:
        raise RecordingFailed(str(error)) from error
    # The graph holds addresses only: its inputs and outputs must live as long as it does.
    held = (run, kept)

    def replay() -> object:
        graph.replay()
        return held

    return replay


@cache
def _side_stream(device: str) -> Any:
    """One stream for all recordings: libraries keep a workspace for each stream they have seen."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


BATCH_S = 0.005
"""Seconds of work that are queued between two looks at the clock."""
QUEUED = 20
"""Runs of an operator that are queued while the GPU waits, at most."""
CYCLES_PER_S = 2e9
"""Rough clock of a waiting GPU, to convert a wait into cycles."""
CENSORED = ("oom", "failed")
FULL = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
"""Texts of library errors for lack of memory where torch raises no `OutOfMemoryError`."""


@dataclass(frozen=True)
class GpuRun:
    """How trials are run.

    Attributes:
        device: `cuda:0`, ...
        pacing: windows.
        nvml: the device's own figures, or why there are none.
        idle_mib: memory in use before this process had a context; None where not known.
    """

    device: str
    pacing: Pacing
    nvml: Nvml | str
    idle_mib: float | None = None

    def measure(self, trial: Trial) -> Row:
        """The row of a trial.

        Raises:
            Broken: nothing can be measured in this process any more.
        """
        broken = False
        try:
            with torch.cuda.device(self.device):
                row = self._figures(trial, self._prepared(trial))
        except Exception as error:
            # Any exception is the result of this trial and does not concern the others.
            row, broken = _censored(error), isinstance(error, RecordingFailed)
        lost = self._clean(trial, row)
        if lost:
            raise Broken({"status": "failed", "reason": lost}, lost)
        if broken:
            raise Broken(row, f"a recording broke off: {row['reason']}")
        return row

    def _prepared(self, trial: Trial) -> Run:
        """The function that runs a trial; memory peaks are reset after building it."""
        from forerun.data.collectors.workloads.torch_run import torch_run

        run = torch_run(trial, self.device)
        torch.cuda.synchronize(self.device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.device)
        return recorded(run, self.device) if trial.cuda_graph else run

    def _figures(self, trial: Trial, run: Run) -> Row:

        pace = self.pacing.of(trial)
        timing = replace(pace.latency, seconds=self._between_events).time(run)
        row: Row = {"status": "ok", **timing.columns()}
        row["allocated_memory_mib"] = torch.cuda.max_memory_allocated(self.device) / MIB
        row["reserved_memory_mib"] = torch.cuda.max_memory_reserved(self.device) / MIB
        if isinstance(trial.subject, Operator):
            row["kernel_ms"] = self._kernel_ms(run, timing.median_ms)
        if isinstance(self.nvml, str):
            return row | {"energy_reason": self.nvml}
        used = self.nvml.used_mib()
        if used is not None and self.idle_mib is not None and used > self.idle_mib:
            row["peak_memory_mib"] = used - self.idle_mib
        row["power_limit_w"] = self.nvml.power_limit_w()
        queue = self._queue(run, timing.median_ms)
        row |= self._look(self.nvml, queue)
        power = pace.power(trial)
        if power is None:
            few = f"one in {pace.one_in} of its sort has a window of power"
            row["energy_reason"] = few if pace.few else "no window of power was asked for"
        else:
            before = row["throttle"]
            row |= power.measure(lambda: self._waited_for(queue), self.nvml)
            row["throttle"] = row["throttle"] or before
        return row | ({"status": "throttled"} if row["throttle"] else {})

    def _kernel_ms(self, run: Run, run_ms: float) -> float:
        """Milliseconds of a run among several back to back: the GPU waits until all are queued."""
        count = max(1, min(QUEUED, round(1e3 * BATCH_S / max(run_ms, 1e-3))))
        wait_s = min(BATCH_S, 2e-3 * count * run_ms)
        sleep: Any = torch.cuda._sleep
        sleep(round(CYCLES_PER_S * wait_s))
        return 1e3 * self._between_events(run, count) / count

    def _between_events(self, run: Run, count: int = 1) -> float:
        """Seconds of `count` synchronised runs between two events."""
        event: Any = torch.cuda.Event
        start, end = (event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(count):
            run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    def _queue(self, run: Run, run_ms: float) -> Callable[[], int]:
        """A function that queues runs for `BATCH_S` without synchronising."""
        count = max(1, round(1e3 * BATCH_S / max(run_ms, 1e-3)))

        def queue() -> int:
            for _ in range(count):
                run()
            return count

        return queue

    def _look(self, nvml: Nvml, queue: Callable[[], int]) -> Row:
        """Clocks, temperature and reasons for throttling while the device works."""
        queue()
        sample = nvml.sample()
        torch.cuda.synchronize(self.device)
        return looks([sample])

    def _waited_for(self, queue: Callable[[], int]) -> int:

        count = queue()
        torch.cuda.synchronize(self.device)
        return count

    def _clean(self, trial: Trial, row: Row) -> str:
        """Free memory; a reason where nothing can run any more, else empty."""
        try:
            if trial.runtime == "compiled":
                torch.compiler.reset()
            torch.cuda.synchronize(self.device)
            # Workspaces are kept for each stream that was used: 32 MiB each on a recent GPU.
            getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)()
            simple = isinstance(trial.subject, Operator) and row["status"] not in CENSORED
            if not simple and torch.cuda.memory_allocated(self.device) > MIB:
                # What still holds memory is part of a reference cycle, as exceptions are.
                gc.collect()
            torch.cuda.empty_cache()
        except RuntimeError as error:
            return _line(error) or type(error).__name__
        return ""


def _censored(error: Exception) -> Row:
    """The row of a trial that ended with an error."""
    cause = error.__cause__ if isinstance(error, RecordingFailed) else error
    full = isinstance(cause, torch.cuda.OutOfMemoryError)
    if full or any(words in str(error) for words in FULL):
        return {"status": "oom", "reason": _line(error)}
    return {"status": "failed", "reason": f"{type(cause).__name__}: {_line(error)}"}


def _line(error: Any) -> str:
    text = str(error).strip().partition("\n")[0]
    return "".join(c if c.isprintable() else " " for c in text)[:200]
