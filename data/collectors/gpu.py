"""Collects measurements on an NVIDIA GPU; also alone: `python -m forerun.data.collectors.gpu`.

Alone it needs torch and nvidia-ml-py, and pandas with pyarrow for the table (without them the rows
stay in the journal, as JSON lines). Networks stand in the table by their names in the zoo;
`forerun collect graphs TABLE` adds their operator graphs where forerun is installed in full.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from forerun.data.collectors.collector import Broken, Collected, collect, progress_line
from forerun.data.collectors.gpu_run import GpuRun
from forerun.data.collectors.host import host_columns, library
from forerun.data.collectors.journal import KEY, Journal
from forerun.data.collectors.nvml import Nvml
from forerun.data.collectors.single_operators import flops
from forerun.data.collectors.sweep import operator_sweep
from forerun.data.collectors.torch_networks import NETWORKS
from forerun.data.collectors.trial import Row, Source, Trial
from forerun.data.graph import Operator

PRODUCTS = ("linear", "matmul", "conv", "attention")
TENSOR_CORES = {"fp16": (7, 0), "bf16": (8, 0), "tf32": (8, 0), "fp8": (8, 9)}
"""Precision -> compute capability from which on a GPU has it."""
COMPILE_S, RECORD_S = 45.0, 2.0
"""Guesses at what compilation and recording a graph take."""
MODULE = "forerun.data.collectors.gpu"
LEAST_MINUTES = 0.5
"""Budget for which a new process is worth its start."""
COUNTER_S = 0.3
"""Waiting for the energy counter's steps, and building what is run."""


@dataclass(frozen=True)
class GpuCollector:
    """Runs trials one by one on one GPU.

    Attributes:
        index: of the GPU, as torch counts.
        device: what rows call it; the product's name when empty.
        trials: what to measure; a sweep of operators and the zoo when None.
        step: of the sweep, where `trials` is None.
        power_s: window of power.
    """

    name: ClassVar[str] = "gpu"
    rate: ClassVar[float] = 1e12

    index: int = 0
    device: str = ""
    trials: tuple[Trial, ...] | None = None
    step: int = 4
    power_s: float = 2.0

    @property
    def fixed_s(self) -> float:
        """Rest, warm-up and windows."""
        run = GpuRun()
        return run.cool_s + run.warm_up_s + run.window_s + self.power_s + COUNTER_S

    def available(self) -> str | None:
        """Why nothing can be measured here; None where something can."""
        try:
            import torch
        except ImportError:
            return "torch is not installed"
        if not torch.cuda.is_available():
            return "torch sees no CUDA GPU"
        if self.index >= torch.cuda.device_count():
            return f"there is no GPU {self.index}"
        return None

    def plan(self) -> tuple[Trial, ...]:
        """Operators in every precision that the GPU has, and networks in every way they are run."""
        if self.trials is not None:
            return self.trials
        precisions = self._precisions()
        operators = operator_trials(operator_sweep(self.step), precisions)
        return (*operators, *network_trials(precisions))

    def about(self) -> dict[str, Any]:
        """Device, host and versions."""
        import torch

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
            "nvidia_ml_py": library("nvidia-ml-py"),
            **host_columns(),
        }

    def measure(self, trial: Trial) -> Row:
        """One row.

        Raises:
            Broken: nothing can be measured in this process any more.
        """
        return self._gpu_run.measure(trial)

    def _precisions(self) -> tuple[str, ...]:
        import torch

        has = torch.cuda.get_device_capability(self.index)
        return ("fp32", *(name for name, least in TENSOR_CORES.items() if has >= least))

    @cached_property
    def _gpu_run(self) -> GpuRun:
        """How trials are run here, with the memory in use before this process had a context."""
        nvml = Nvml.visible(self.index)
        idle = None if isinstance(nvml, str) else nvml.used_mib()
        return GpuRun(f"cuda:{self.index}", power_s=self.power_s, nvml=nvml, idle_mib=idle)


def operator_trials(operators: Sequence[Operator], precisions: Sequence[str]) -> tuple[Trial, ...]:
    """Operators in each precision that tells something new of them."""
    return tuple(
        Trial(operator, precision, group=f"{operator.kind} {precision}", flops=flops(operator))
        for operator in operators
        for precision in precisions
        if _tells(operator.kind, precision)
    )


def _tells(kind: str, precision: str) -> bool:
    """Products run on other units in each precision; what moves data knows its width alone."""
    if precision == "fp8":
        return kind == "linear"
    return kind in PRODUCTS or precision in ("fp32", "fp16")


def network_trials(precisions: Sequence[str]) -> tuple[Trial, ...]:
    """The zoo: eager at all batch sizes, training, compiled, and as recorded CUDA graphs."""
    return tuple(
        Trial(
            Source(name),
            precision,
            size,
            phase,
            runtime="compiled" if how == "compiled" else "eager",
            cuda_graph=how == "recorded",
            group=f"{name} {phase}" if how == "eager" else f"{how} {phase}",
            flops=1e9 * definition.gflops,
            setup_s={"compiled": COMPILE_S, "recorded": RECORD_S, "eager": 1.0}[how],
        )
        for name, definition in NETWORKS.items()
        for precision, phase, how in _ways(precisions)
        for size in definition.sizes
    )


def _ways(precisions: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Precision, phase and runtime of networks."""
    half = "amp" if "fp16" in precisions else "fp32"
    for precision in dict.fromkeys(("fp32", half, *(p for p in precisions if p in ("fp16",)))):
        yield precision, "inference", "eager"
    yield half, "inference", "compiled"
    yield half, "inference", "recorded"
    yield "fp32", "training", "eager"
    if half == "amp":
        yield half, "training", "eager"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the GPU to a budget and write a table: 0 when done, 2 where it cannot be measured.

    Where the GPU is lost to the process, a new one goes on for the rest of the budget.
    """
    given = _arguments(arguments)
    # So that torch and NVML count GPUs alike.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    collector = GpuCollector(given.gpu, given.device, None, given.step, given.power_seconds)
    why = collector.available()
    if why is not None:
        print(f"cannot measure here: {why}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    journal, start, lost = Journal.beside(given.output), time.monotonic(), False
    try:
        done = collect(collector, journal, 60 * given.budget_minutes, tell=_tell)
        print(_summary(done), file=sys.stderr)
    except Broken as error:
        lost = True
        print(f"the GPU is lost to this process: {error}", file=sys.stderr)
    finally:
        print(_write(journal, given.output), file=sys.stderr)
    left = given.budget_minutes - (time.monotonic() - start) / 60
    if lost and left > LEAST_MINUTES:
        _go_on(given, left)
    return 1 if lost else 0


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure an NVIDIA GPU.")
    parser.add_argument("-o", "--output", type=Path, required=True, help="table .parquet")
    parser.add_argument("--budget-minutes", type=float, default=8.0, help="end after so long")
    parser.add_argument("--device", default="", help="what rows call it [the product's name]")
    parser.add_argument("--gpu", type=int, default=0, help="index of the GPU")
    parser.add_argument("--step", type=int, default=4, help="factor from one size to the next")
    parser.add_argument("--power-seconds", type=float, default=2.0, help="window; 0 for none")
    return parser.parse_args(arguments)


def _go_on(given: argparse.Namespace, minutes: float) -> None:
    """Become a new process with the same arguments and what is left of the budget."""
    words = ["-o", str(given.output), "--budget-minutes", f"{minutes:.3f}", "--gpu", str(given.gpu)]
    words += ["--step", str(given.step), "--power-seconds", str(given.power_seconds)]
    words += ["--device", given.device] if given.device else []
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", MODULE, *words])  # noqa: S606


def _tell(trial: Trial, row: Row, left_s: float) -> None:
    print(progress_line(trial, row, left_s), file=sys.stderr, flush=True)


def _summary(done: Collected) -> str:
    return f"{done.measured} measured, {done.resumed} were there, {done.left} left for another run"


def _write(journal: Journal, output: Path) -> str:
    """The journal as a table; what was done, in one line."""
    try:
        frame = journal.frame()
        frame.drop(columns=KEY, errors="ignore").to_parquet(output, index=False)
    except ImportError as error:
        return f"no table ({error}); the rows are in {journal.lines.path}"
    return f"{len(frame)} rows in {output}"


if __name__ == "__main__":
    sys.exit(main())
