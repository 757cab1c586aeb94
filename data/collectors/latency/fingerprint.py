"""A one-minute fingerprint of a device: reference operators, and optionally networks."""

from dataclasses import dataclass
from typing import Any, ClassVar

from forerun.data.collectors.latency.cpu import CpuCollector, CpuRun
from forerun.data.collectors.latency.gpu import GpuCollector
from forerun.data.collectors.latency.gpu_plan import Pace, Pacing
from forerun.data.collectors.runner.collector import Collector, coverage_first
from forerun.data.collectors.runner.stopwatch import Stopwatch
from forerun.data.collectors.runner.trial import Executor, Row, Source, Trial
from forerun.data.collectors.system.host import library, usable_cpus
from forerun.data.collectors.system.nvml import PowerWindow
from forerun.data.collectors.workloads.operators import flops, reference_operators
from forerun.data.collectors.workloads.torch_networks import NETWORKS

WINDOW_S = 0.5
ZOO = ("resnet50", "mobilenet-v2", "vit-base", "bert-base-128")


@dataclass(frozen=True)
class ProbeCollector:
    """Measures the reference operators, on the GPU where there is one, else on the processor.

    Attributes:
        inner: measures the trials; the GPU's collector where it can, else the CPU's, when None.
        networks: trials in addition to the reference operators.
    """

    name: ClassVar[str] = "probe"
    rate: ClassVar[float] = CpuCollector.rate

    inner: Collector
    networks: tuple[Trial, ...] = ()

    @classmethod
    def here(
        cls, device: str = "", threads: int | None = None, networks: tuple[Trial, ...] = ()
    ) -> "ProbeCollector":
        """A probe of this machine.

        Args:
            device: what rows call it; the GPU's own name or `my-cpu` when empty.
            threads: number of CPU threads; all that this process may use when None.
            networks: trials of whole networks that the device can run.
        """
        power = PowerWindow(WINDOW_S, rest_s=0.3)
        pace = Pace(Stopwatch(0.3, 0.2), few=power)
        gpu = GpuCollector(device=device, trials=(), pacing=Pacing(pace, pace))
        if gpu.available() is None:
            return cls(gpu, networks)
        how = CpuRun(threads or usable_cpus(), WINDOW_S, 0.1)
        return cls(CpuCollector(device or "my-cpu", how=how), networks)

    def fixed_s(self, trial: Trial) -> float:
        """Seconds of a trial apart from its slowest runs, from the inner collector."""
        return self.inner.fixed_s(trial)

    def available(self) -> str | None:
        """Why the inner collector cannot measure here; None where it can."""
        return self.inner.available()

    def plan(self) -> tuple[Trial, ...]:
        """The reference operators in fp32 and networks, one of every kind first."""
        onnx = isinstance(self.inner, CpuCollector) and library("onnxruntime") is not None
        operators = reference_trials("onnxruntime" if onnx else "torch")
        return coverage_first((*operators, *self.networks))

    def about(self) -> dict[str, Any]:
        """Machine and settings, from the inner collector."""
        return self.inner.about()

    def measure(self, trial: Trial) -> Row:
        """One row, measured by the inner collector."""
        return self.inner.measure(trial)


def reference_trials(framework: Executor) -> tuple[Trial, ...]:
    """The reference operators in fp32, through onnxruntime or eager torch."""
    runtime = "eager" if framework == "torch" else framework
    return tuple(
        Trial(op, framework=framework, runtime=runtime, group=op.kind, flops=flops(op))
        for op in reference_operators()
    )


def zoo_trials() -> tuple[Trial, ...]:
    """A few networks of the zoo in eager torch, at batch size 1 and in a batch."""
    return tuple(
        Trial(
            Source(name),
            batch_size=size,
            group=f"network {name}",
            flops=1e9 * NETWORKS[name].gflops,
        )
        for name in ZOO
        for size in (1, 16)
    )
