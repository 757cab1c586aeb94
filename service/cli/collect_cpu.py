"""`forerun collect cpu`: measure operators and networks on this machine's processor."""

from pathlib import Path
from typing import Annotated

import typer

from forerun.service.cli.output import progress


def cpu(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="table to write, .parquet or .csv")
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="reference operators and networks, in two minutes")
    ] = False,
    device: Annotated[str, typer.Option(help="what rows call this machine")] = "my-cpu",
    threads: Annotated[
        int | None, typer.Option(help="that compute [all this process may use]", min=1)
    ] = None,
    budget_minutes: Annotated[
        float | None, typer.Option(help="end after so long", min=0.05, max=10_000)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Measure this machine's processor: latency, memory above the runtime's own, energy."""
    from forerun.data.collectors.cpu import CpuCollector
    from forerun.data.collectors.cpu_run import CpuRun
    from forerun.data.collectors.host import usable_cpus
    from forerun.service.cli.collecting import run_collector
    from forerun.service.measured_networks import (
        onnx_trials,
        reference_networks,
        reference_trials,
    )

    count = threads or usable_cpus()
    how = CpuRun(count, window_s=1.0) if quick else CpuRun(count, window_s=2.0)
    progress(f"measuring {device} with {count} threads into {output}")
    trials = (*reference_trials("onnxruntime"), *onnx_trials(reference_networks(), output))
    collector = CpuCollector(device, trials, how)
    minutes = budget_minutes or (1.8 if quick else 20.0)
    run_collector(collector, output, minutes, threads=count, json=json)
