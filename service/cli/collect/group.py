"""`forerun collect`: measure on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from forerun.service.cli.collect import circuit, cpu, gpu, probe, program, window
from forerun.service.cli.collect.plugin import CollectGroup
from forerun.service.cli.output import progress, progress_bar

app = typer.Typer(
    rich_markup_mode=None, cls=CollectGroup, help="Measure on this machine.", no_args_is_help=True
)
app.command("cpu")(cpu.cpu)
app.command("probe")(probe.probe)
app.command("gpu")(gpu.gpu)
app.command("graphs")(gpu.graphs)
app.command("program")(program.program)
app.command("window")(window.window)
app.command("circuit")(circuit.circuit)


@app.command("contention")
def contention(
    plan: Annotated[
        Path,
        typer.Option(help="plan of victims and neighbours: .yaml file, quick, short or standard"),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="folder of the collection; an existing one is resumed"),
    ],
    budget_minutes: Annotated[
        float | None, typer.Option(help="time budget; no run is started after it", min=0)
    ] = None,
) -> None:
    """Measure how neighbours slow down work of known size, with metrics of the host."""
    from forerun.data.collectors.interference.collection import Collection

    collection = Collection.open(plan, output)
    for line in collection.limits():
        progress(line)
    try:
        with progress_bar("runs", len(collection.todo())) as step:
            for _ in collection.run(budget_minutes=budget_minutes):
                step()
    finally:
        # The tables are also written when the collection is interrupted.
        tables = collection.write_tables()
        counts = ", ".join(f"{name} {len(rows):,}" for name, rows in tables.items())
        progress(f"{counts or 'no'} rows in {output}")
