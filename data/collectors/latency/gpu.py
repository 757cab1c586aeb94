"""Collects measurements on an NVIDIA GPU.

Also a program: `python -m forerun.data.collectors.latency.gpu`.

As a program it needs torch and nvidia-ml-py, and pandas with pyarrow for the table (without them
the rows stay in the journal, as JSON lines). The table holds networks by their names in a zoo;
`forerun collect graphs TABLE` adds their operator graphs where forerun is installed in full.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, get_args

from forerun.data.collectors.latency.gpu_plan import LONG_S, Pacing, Part, gpu_plan, precisions_of
from forerun.data.collectors.latency.gpu_run import GpuRun
from forerun.data.collectors.runner.collector import Broken, Collected, collect, progress_line
from forerun.data.collectors.runner.journal import KEY, Journal
from forerun.data.collectors.runner.trial import Row, Trial
from forerun.data.collectors.system.host import host_columns, library
from forerun.data.collectors.system.nvml import Nvml
from forerun.data.collectors.workloads.torch_networks import ZOOS, Zoo
from forerun.data.errors import InputError
from forerun.data.lazy import torch

MODULE = "forerun.data.collectors.latency.gpu"
LEAST_MINUTES = 0.5
"""Least remaining budget, minutes, for which a new process is started."""
BETWEEN_S = 0.03
"""Seconds from one trial to the next: making operands, freeing memory, writing the row."""


@dataclass(frozen=True)
class GpuCollector:
    """Runs trials one by one on one GPU.

    Attributes:
        index: index of the GPU, as torch counts.
        device: what rows call it; the product's name when empty.
        trials: what to measure, in order; a plan of operators and the zoo when None.
        step: step between operators' sizes in that plan.
        only: part of that plan; all of it when None.
        pacing: windows.
        zoo: whose networks that plan holds.
    """

    name: ClassVar[str] = "gpu"
    rate: ClassVar[float] = 3e13

    index: int = 0
    device: str = ""
    trials: tuple[Trial, ...] | None = None
    step: int = 2
    only: Part | None = None
    pacing: Pacing = field(default_factory=Pacing.to_a_budget)
    zoo: Zoo = "forerun"

    def fixed_s(self, trial: Trial) -> float:
        """Seconds of warm-up and windows."""
        return BETWEEN_S + self.pacing.of(trial).total_s(trial)

    def available(self) -> str | None:
        """Why nothing can be measured here; None where something can."""
        # Makes torch number GPUs as NVML does; torch reads it when it first looks for GPUs.
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        try:
            import torch
        except ImportError:
            return "torch is not installed"
        if not torch.cuda.is_available():
            return "torch sees no CUDA GPU"
        if self.index >= torch.cuda.device_count():
            return f"there is no GPU {self.index}"
        if self.zoo == "timm" and library("timm") is None:
            return "timm is not installed"
        return None

    def plan(self) -> tuple[Trial, ...]:
        """Operators in every precision that the GPU has, and networks in every execution mode."""
        if self.trials is not None:
            return self.trials
        precisions = precisions_of(torch.cuda.get_device_capability(self.index))
        return gpu_plan(precisions, self.step, self.only, self.fixed_s, ZOOS[self.zoo])

    def about(self) -> dict[str, Any]:
        """Device, host and versions, which a resumed run must share."""
        run = self._gpu_run
        driver = None if isinstance(run.nvml, str) else run.nvml.driver()
        name = torch.cuda.get_device_name(self.index)
        return {
            "device": self.device or name,
            "gpu": name,
            "framework_version": torch.__version__.partition("+")[0],
            "cuda": torch.version.cuda,
            "driver": driver,
            "layout": "nchw",
            "fp32_convolutions": "tf32",
            "nvidia_ml_py": library("nvidia-ml-py"),
            **host_columns(),
        }

    def measure(self, trial: Trial) -> Row:
        """One row.

        Raises:
            Broken: nothing can be measured in this process any more.
        """
        return self._gpu_run.measure(trial)

    @cached_property
    def _gpu_run(self) -> GpuRun:
        """How trials are run here, with the memory in use before this process had a context."""
        nvml = Nvml.visible(self.index)
        idle = None if isinstance(nvml, str) else nvml.used_mib()
        return GpuRun(f"cuda:{self.index}", self.pacing, nvml, idle)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the GPU within a budget and write a table: 0 when done, 2 where it cannot measure.

    Where the process loses the GPU, a new process continues for the rest of the budget.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    given = _arguments(words)
    end = time.monotonic() + 60 * given.budget_minutes
    pacing = Pacing.to_a_budget(given.power_seconds)
    collector = GpuCollector(
        given.gpu, given.device, None, given.step, given.only, pacing, given.zoo
    )
    why = collector.available()
    if why is not None:
        print(f"cannot measure here: {why}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    journal, lost = Journal.for_table(given.output), False
    try:
        journal.open(collector.about())
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        done = collect(collector, journal, end - time.monotonic(), report=_report)
        print(_summary(done), file=sys.stderr)
    except Broken as error:
        lost = True
        print(f"this process lost the GPU: {error}", file=sys.stderr)
    finally:
        print(_write(journal, given.output), file=sys.stderr)
    left = (end - time.monotonic()) / 60
    if lost and left > LEAST_MINUTES:
        _go_on(words, left)
    return 1 if lost else 0


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure an NVIDIA GPU.")
    parser.add_argument("-o", "--output", type=Path, required=True, help="table .parquet")
    parser.add_argument("--budget-minutes", type=float, default=9.0, help="end after so long")
    parser.add_argument("--only", choices=get_args(Part), help="part of the plan [all of it]")
    parser.add_argument("--zoo", choices=get_args(Zoo), default="forerun", help="whose networks")
    parser.add_argument("--device", default="", help="what rows call it [the product's name]")
    parser.add_argument("--gpu", type=int, default=0, help="index of the GPU")
    parser.add_argument("--step", type=int, default=2, help="factor from one size to the next")
    parser.add_argument(
        "--power-seconds", type=float, default=LONG_S, help="long windows of power; 0 for none"
    )
    return parser.parse_args(words)


def _go_on(words: Sequence[str], minutes: float) -> None:
    """Replace this process by a new one with the same arguments and the remaining budget."""
    sys.stderr.flush()
    rest = ["--budget-minutes", f"{minutes:.3f}"]
    os.execv(sys.executable, [sys.executable, "-m", MODULE, *words, *rest])  # noqa: S606


def _report(trial: Trial, row: Row, left_s: float) -> None:
    print(progress_line(trial, row, left_s), file=sys.stderr, flush=True)


def _summary(done: Collected) -> str:
    return f"{done.measured} measured, {done.resumed} were there, {done.left} left for another run"


def _write(journal: Journal, output: Path) -> str:
    """Write the journal as a table; a line that says what was written."""
    try:
        frame = journal.frame()
        frame.drop(columns=KEY, errors="ignore").to_parquet(output, index=False)
    except ImportError as error:
        return f"no table ({error}); the rows are in {journal.lines.path}"
    return f"{len(frame)} rows in {output}"


if __name__ == "__main__":
    sys.exit(main())
