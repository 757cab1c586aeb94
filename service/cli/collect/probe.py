"""`forerun collect probe`: a one-minute fingerprint of this machine's GPU or processor."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forerun.service.cli.output import progress

if TYPE_CHECKING:
    from forerun.data.collectors.runner.trial import Trial


def probe(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="table to write, .parquet or .csv")
    ],
    device: Annotated[
        str, typer.Option(help="name of the device in the rows [the GPU's name, or my-cpu]")
    ] = "",
    threads: Annotated[
        int | None,
        typer.Option(
            help="computing threads of a processor [all that this process may use]", min=1
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Measure reference operators and small networks for one minute, the same on every device."""
    from forerun.data.collectors.latency.fingerprint import ProbeCollector
    from forerun.data.collectors.latency.gpu import GpuCollector
    from forerun.data.collectors.system.host import usable_cpus
    from forerun.service.adaptation.collecting import check_can
    from forerun.service.cli.collect.shared import run_collector
    from forerun.service.stores.device_sheets import nvidia_gpu, this_cpu

    collector = ProbeCollector.here(device, threads)
    check_can(collector, output)
    on_gpu = isinstance(collector.inner, GpuCollector)
    collector = ProbeCollector(collector.inner, _networks(on_gpu, output))
    count = threads or usable_cpus()
    progress(f"probing the {'GPU' if on_gpu else f'processor with {count} threads'} into {output}")
    sheet = nvidia_gpu if on_gpu else this_cpu
    run_collector(collector, output, 1.0, sheet, json)


def _networks(on_gpu: bool, output: Path) -> "tuple[Trial, ...]":
    from forerun.data.collectors.latency.fingerprint import zoo_trials
    from forerun.data.collectors.system.host import library
    from forerun.service.adaptation.collecting import built_trials, keep_zoo_graphs

    if on_gpu:
        trials = zoo_trials()
        keep_zoo_graphs((trial.subject.name for trial in trials), output)
        return trials
    return built_trials(output, quick=True)[:4] if library("onnxruntime") else ()
