"""A one-minute fingerprint of a device: reference operators, and optionally networks."""

from forerun.data.collectors.latency.cpu import CpuCollector, CpuRun
from forerun.data.collectors.latency.gpu import GpuCollector
from forerun.data.collectors.latency.gpu_plan import Pace, Pacing
from forerun.data.collectors.runner.collector import coverage_first
from forerun.data.collectors.runner.stopwatch import Stopwatch
from forerun.data.collectors.runner.trial import Executor, Source, Trial
from forerun.data.collectors.system.host import library, usable_cpus
from forerun.data.collectors.system.nvml import PowerWindow
from forerun.data.collectors.workloads.operators import flops, reference_operators
from forerun.data.collectors.workloads.torch_networks import NETWORKS

WINDOW_S = 0.5
ZOO = ("resnet50", "mobilenet-v2", "vit-base", "bert-base-128")


def probe_collector(device: str = "", threads: int | None = None) -> GpuCollector | CpuCollector:
    """A collector of this machine's GPU where there is one, else of its processor; without trials.

    Args:
        device: what rows call it; the GPU's own name or `my-cpu` when empty.
        threads: number of CPU threads; all that this process may use when None.
    """
    power = PowerWindow(WINDOW_S, rest_s=0.3)
    pace = Pace(Stopwatch(0.3, 0.2), few=power)
    gpu = GpuCollector(device=device, trials=(), pacing=Pacing(pace, pace))
    if gpu.available() is None:
        return gpu
    how = CpuRun(threads or usable_cpus(), WINDOW_S, 0.1)
    return CpuCollector(device or "my-cpu", how=how)


def probe_trials(networks: tuple[Trial, ...], *, on_gpu: bool) -> tuple[Trial, ...]:
    """The reference operators in fp32 and networks, one of every kind first."""
    onnx = not on_gpu and library("onnxruntime") is not None
    return coverage_first((*reference_trials("onnxruntime" if onnx else "torch"), *networks))


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
