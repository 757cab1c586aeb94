"""`forerun collect cpu`: measure operators and networks on this machine's processor."""

from pathlib import Path
from typing import Annotated

import typer

from forerun.service.cli.output import progress

BUSY = 0.3
"""Load per processor from which on other processes disturb the measured times."""


def cpu(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="table to write, .parquet or .csv")
    ],
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="measure reference operators and networks only, in two minutes"
        ),
    ] = False,
    plan: Annotated[
        Path | None,
        typer.Option(help="measurement plan: .yaml file, or name of a packaged one [cpu-standard]"),
    ] = None,
    device: Annotated[str, typer.Option(help="name of this machine in the rows")] = "my-cpu",
    threads: Annotated[
        int | None, typer.Option(help="computing threads [all that this process may use]", min=1)
    ] = None,
    budget_minutes: Annotated[
        float | None,
        typer.Option(help="time budget; no trial is started that would end later", min=0.05),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Measure this machine's processor: latency, memory beyond that of the runtime, energy."""
    from forerun.data.collectors.latency.cpu import CpuCollector
    from forerun.data.collectors.latency.cpu_run import CpuRun
    from forerun.data.collectors.system.host import library, load, usable_cpus
    from forerun.data.errors import InputError
    from forerun.service.adaptation.collecting import check_can, planned_trials, quick_trials
    from forerun.service.cli.collect.shared import run_collector
    from forerun.service.stores.device_sheets import this_cpu

    if quick and plan is not None:
        raise InputError("Give --quick or --plan, not both.")
    count = threads or usable_cpus()
    check_can(CpuCollector(device), output)
    trials, minutes, window_s = quick_trials(output) if quick else planned_trials(plan, output)
    collector = CpuCollector(device, trials, CpuRun(count, window_s))
    if library("torch") is None and len(collector.plan()) < len(trials):
        progress("torch is not installed: measuring through onnxruntime alone")
    if (load() or 0.0) > BUSY * usable_cpus():
        progress("this machine is busy: times are those of a busy machine, and unsteady")
    progress(f"measuring {device} with {count} threads into {output}")
    run_collector(collector, output, budget_minutes or minutes, this_cpu, json)
