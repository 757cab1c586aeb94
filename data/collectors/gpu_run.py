"""One trial on an NVIDIA GPU: latency by events, memory at three levels, power over seconds."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from forerun.data.collectors.collector import Broken
from forerun.data.collectors.nvml import MIB, Nvml, PowerWindow
from forerun.data.collectors.stopwatch import Stopwatch
from forerun.data.collectors.trial import Row, Trial

Run = Callable[[], object]
BATCH_S = 0.02
"""Work that is queued before the clock is looked at."""


@dataclass(frozen=True)
class GpuRun:
    """How trials are run.

    Attributes:
        device: `cuda:0`, ...
        window_s: of single runs, for latency.
        warm_up_s: of runs before, for clocks to rise.
        power_s: of runs that follow each other, for power; 0 measures none.
        cool_s: rest before a trial.
        nvml: the device's own figures, or why there are none.
        idle_mib: memory in use before this process had a context; None where not known.
    """

    device: str = "cuda:0"
    window_s: float = 0.3
    warm_up_s: float = 0.2
    power_s: float = 2.0
    cool_s: float = 0.3
    nvml: Nvml | str = "NVML was not asked"
    idle_mib: float | None = None
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)

    def measure(self, trial: Trial) -> Row:
        """The row of a trial.

        Raises:
            Broken: nothing can be measured in this process any more.
        """
        self.sleep(self.cool_s)
        row = self._attempt(trial)
        lost = self._clean(trial)
        if lost:
            raise Broken({"status": "failed", "reason": lost}, lost)
        return row

    def _attempt(self, trial: Trial) -> Row:
        import torch

        from forerun.data.collectors.torch_run import torch_run

        try:
            run = torch_run(trial, self.device)
            with torch.cuda.device(self.device):
                return self._figures(run)
        except torch.cuda.OutOfMemoryError as error:
            return {"status": "oom", "reason": _line(error)}
        except Exception as error:
            # Whatever a library raises is what became of this trial, not of the others.
            return {"status": "failed", "reason": f"{type(error).__name__}: {_line(error)}"}

    def _figures(self, run: Run) -> Row:
        import torch

        watch = Stopwatch(self.window_s, self.warm_up_s, seconds=self._seconds)
        timing = watch.time(run)
        row: Row = {"status": "ok", **timing.columns()}
        row["allocated_memory_mib"] = torch.cuda.max_memory_allocated(self.device) / MIB
        row["reserved_memory_mib"] = torch.cuda.max_memory_reserved(self.device) / MIB
        if isinstance(self.nvml, str):
            return row | {"energy_reason": self.nvml}
        used = self.nvml.used_mib()
        if used is not None and self.idle_mib is not None and used > self.idle_mib:
            row["peak_memory_mib"] = used - self.idle_mib
        row["power_limit_w"] = self.nvml.power_limit_w()
        if self.power_s <= 0:
            return row | {"energy_reason": "no power window was asked for"}
        window = PowerWindow(self.power_s)
        row |= window.measure(self._batch(run, timing.median_ms), self.nvml)
        return row | ({"status": "throttled"} if row["throttle"] else {})

    def _seconds(self, run: Run) -> float:
        """One run between two events, waited for."""
        import torch

        event: Any = torch.cuda.Event
        start, end = (event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    def _batch(self, run: Run, run_ms: float) -> Callable[[], int]:
        """Runs that follow each other for `BATCH_S`, waited for together."""
        import torch

        count = max(1, round(BATCH_S / max(run_ms / 1e3, 1e-6)))

        def batch() -> int:
            for _ in range(count):
                run()
            torch.cuda.synchronize(self.device)
            return count

        return batch

    def _clean(self, trial: Trial) -> str:
        """Give memory back and begin peaks anew; why nothing runs any more, if so."""
        import torch

        try:
            if trial.runtime == "compiled":
                torch.compiler.reset()
            gc.collect()
            torch.cuda.synchronize(self.device)
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)
        except RuntimeError as error:
            return _line(error) or type(error).__name__
        return ""


def _line(error: Any) -> str:
    text = str(error).strip().partition("\n")[0]
    return "".join(c if c.isprintable() else " " for c in text)[:200]
