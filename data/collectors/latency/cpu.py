"""Collects measurements of operators and networks on this machine's processor.

Each trial runs in an interpreter of its own (`python -m ...cpu < trial > row`), where the memory of
the trial alone is measured and a crash ends no other trial.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any, ClassVar

from forerun.data.collectors.runner.collector import coverage_first
from forerun.data.collectors.runner.stopwatch import Stopwatch
from forerun.data.collectors.runner.trial import Row, Trial
from forerun.data.collectors.runner.worker import finished
from forerun.data.collectors.system.host import (
    OtherLoad,
    QuietWait,
    forget_peak,
    host_columns,
    library,
    load,
    peak_mib,
    resident_mib,
    usable_cpus,
)

Run = Callable[[], object]
KILLED = (-9, 137)
MODULE = "forerun.data.collectors.latency.cpu"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
PARTS = 5
"""Parts of a window: a fifth of a second each where runs are short, longer than a time slice."""
ENERGY_S = 0.5
"""Shortest window that energy is counted over; the counters move every millisecond."""


@dataclass(frozen=True, slots=True)
class CpuRun:
    """How a trial is run.

    Attributes:
        threads: number of threads that compute.
        window_s: measured time.
        warm_up_s: time before it.
        timeout_s: time after which a trial is stopped.
    """

    threads: int
    window_s: float = 1.0
    warm_up_s: float = 0.2
    timeout_s: float = 300.0

    def apart(self, trial: Trial) -> Row:
        """The row of a trial, measured in a process of its own; failures are in the row."""
        given = json.dumps({"trial": trial.to_json(), "how": asdict(self)})
        count = dict.fromkeys(_THREADS, str(self.threads))
        command = [sys.executable, "-m", MODULE]
        try:
            done = finished(command, self.timeout_s, input=given, env={**os.environ, **count})
        except subprocess.TimeoutExpired:
            return {"status": "failed", "reason": f"not done after {self.timeout_s:g} s"}
        if done.returncode in KILLED:
            return {"status": "oom", "reason": "killed by the system"}
        try:
            return dict(json.loads(done.stdout.splitlines()[-1]))
        except (ValueError, IndexError):
            last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
            return {"status": "failed", "reason": _printable(last[0])}

    def here(self, trial: Trial) -> Row:
        """The row of a trial, measured in this process."""
        from forerun.data.collectors.workloads.executors import NoMemory, prepare

        try:
            prepare_alone = prepare(trial, self.threads)
            forget_peak()
            before = resident_mib()
            run = prepare_alone()
            timing = Stopwatch(self.window_s, self.warm_up_s, parts=PARTS).time(run)
        except (MemoryError, NoMemory) as error:
            return {"status": "oom", "reason": _printable(str(error) or "out of memory")}
        except Exception as error:
            # Any exception is the result of this trial and does not concern the others.
            return {"status": "failed", "reason": _printable(f"{type(error).__name__}: {error}")}
        row: Row = {"status": "ok", **timing.columns()}
        peak = peak_mib()
        if peak is not None and before is not None and peak > before:
            row["peak_memory_mib"] = peak - before
        return row | _energy(run, timing.median_ms, self.window_s)


def _energy(run: Run, run_ms: float, window_s: float) -> Row:
    """Energy and power of runs in a separate window, or the reason why there are none."""
    from time import perf_counter

    from forerun.data.collectors.system.host import Rapl

    rapl = Rapl.find()
    if rapl.reason:
        return {"energy_reason": rapl.reason}
    before, start, runs = rapl.snapshot(), perf_counter(), 0
    while perf_counter() - start < max(ENERGY_S, window_s) or not runs:
        run()
        runs += 1
    took = perf_counter() - start
    joules = rapl.joules(before, rapl.snapshot())
    if joules <= 0:
        return {"energy_reason": "the energy counters did not advance"}
    power = joules / took
    return {"energy_j": power * run_ms / 1e3, "power_w": power}


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:200]


def main() -> None:
    """Read a trial from standard input and print its row as the last line of standard output."""
    given: dict[str, Any] = json.load(sys.stdin)
    row = CpuRun(**given["how"]).here(Trial.from_json(given["trial"]))
    print(json.dumps(row))


if __name__ == "__main__":
    main()


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
