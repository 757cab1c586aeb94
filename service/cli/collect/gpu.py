"""`forerun collect gpu`: measure operators and networks on an NVIDIA GPU."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from forerun.service.cli.output import progress


def gpu(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="table to write, .parquet or .csv")
    ],
    budget_minutes: Annotated[
        float, typer.Option(help="time budget; no trial is started that would end later", min=0.05)
    ] = 30.0,
    device: Annotated[
        str, typer.Option(help="name of the GPU in the rows [the product's name]")
    ] = "",
    index: Annotated[int, typer.Option("--gpu", help="index of the GPU", min=0)] = 0,
    only: Annotated[
        Literal["operators", "networks", "recorded", "compiled"] | None,
        typer.Option(help="part of the plan; recorded means as a CUDA graph [all]"),
    ] = None,
    zoo: Annotated[
        Literal["forerun", "timm"],
        typer.Option(help="whose networks: forerun's own, or those of the package timm"),
    ] = "forerun",
    step: Annotated[
        int, typer.Option(help="factor from one operator size to the next", min=2, max=64)
    ] = 2,
    power_seconds: Annotated[
        float,
        typer.Option(
            help="length of windows in which power is measured; 0 measures no power", min=0, max=600
        ),
    ] = 2.0,
    json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Measure a GPU: latency, memory at three levels, power and energy, clocks and throttling."""
    from forerun.data.collectors.latency.gpu import GpuCollector
    from forerun.data.collectors.latency.gpu_windows import Pacing
    from forerun.service.cli.collect.shared import run_collector
    from forerun.service.stores.device_sheets import nvidia_gpu

    pacing = Pacing.to_a_budget(power_seconds)
    collector = GpuCollector(index, device, None, step, only, pacing, zoo)
    try:
        run_collector(collector, output, budget_minutes, nvidia_gpu, json)
    finally:
        # The networks in the table need graphs, also after an interruption or a lost GPU.
        if output.is_file():
            graphs(output)


def graphs(
    table: Annotated[
        Path, typer.Argument(help="table of measurements that names networks of a zoo")
    ],
) -> None:
    """Trace the zoo networks that a table names, for a table measured without graphs."""
    from forerun.service.adaptation.collecting import keep_graphs_of
    from forerun.service.adaptation.measurement_files import graph_folder_of

    progress(f"{keep_graphs_of(table)} graphs in {graph_folder_of(table)}")
