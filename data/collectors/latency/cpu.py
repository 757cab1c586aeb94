"""Collects measurements of operators and networks on this machine's processor."""

from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar

from forerun.data.collectors.latency.cpu_run import CpuRun
from forerun.data.collectors.runner.budget import coverage_first
from forerun.data.collectors.runner.trial import Row, Trial
from forerun.data.collectors.system.host import host_columns, library, load, usable_cpus
from forerun.data.collectors.system.other_load import OtherLoad, QuietWait

PROCESS_S = 1.0
"""Start of an interpreter with its runtime."""


@dataclass(frozen=True)
class CpuCollector:
    """Runs trials one by one, each in a process of its own, with a given number of threads.

    Attributes:
        device: name of this machine in the rows.
        trials: what to measure; those of runtimes that are not installed are left out.
        how: threads and windows.
        quiet: waits while other processes are busy.
    """

    name: ClassVar[str] = "cpu"
    rate: ClassVar[float] = 5e9

    device: str = "my-cpu"
    trials: tuple[Trial, ...] = ()
    how: CpuRun = field(default_factory=lambda: CpuRun(usable_cpus()))
    quiet: QuietWait = field(default_factory=QuietWait)

    def fixed_s(self, trial: Trial) -> float:
        """Seconds to start a process, of the warm-up and of the window."""
        return PROCESS_S + self.how.warm_up_s + self.how.window_s

    def available(self) -> str | None:
        """Why nothing can be measured here; None where something can."""
        if any(library(name) for name in ("onnxruntime", "torch")):
            return None
        return "neither onnxruntime nor torch is installed"

    def plan(self) -> tuple[Trial, ...]:
        """The trials whose runtime is installed, one of every group first."""
        return coverage_first(trial for trial in self.trials if library(trial.framework))

    def about(self) -> dict[str, Any]:
        """Device, host and settings, which a resumed run must share."""
        return {"device": self.device, "threads": self.how.threads, **host_columns()}

    def measure(self, trial: Trial) -> Row:
        """One row, measured in a process of its own while other processes are idle.

        Where they were not idle, the trial is run again, and the faster run counts.
        """
        load_before = load()
        row = self._watched(trial)
        if row.get("disturbed") and row.get("status") == "ok" and self.quiet.left_s > 0:
            again = self._watched(trial)
            if again.get("latency_ms", inf) < row["latency_ms"]:
                row = again
        row |= {"framework_version": library(trial.framework), "layout": "nchw"}
        return row | {"load_1m": load_before}

    def _watched(self, trial: Trial) -> Row:
        """One run, with the load of other processes during it."""
        self.quiet.wait()
        before = self.quiet.read()
        row = self.how.apart(trial)
        after = self.quiet.read()
        if before is None or after is None:
            return row
        others = OtherLoad.between(before, after)
        row |= {"others_share": others.busy_share, "stolen_share": others.stolen_share}
        return row | {"disturbed": others.disturbs}
