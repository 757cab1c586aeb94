"""`forerun collect`: measure on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from forerun.service.cli.collect import cpu, gpu, probe, program, window
from forerun.service.cli.output import progress, progress_bar

app = typer.Typer(help="Measure on this machine.", no_args_is_help=True)
app.command("cpu")(cpu.cpu)
app.command("probe")(probe.probe)
app.command("gpu")(gpu.gpu)
app.command("graphs")(gpu.graphs)
app.command("program")(program.program)
app.command("window")(window.window)


@app.command("contention")
def contention(
    plan: Annotated[Path, typer.Option(help="plan .yaml: victims, neighbours, repeats")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="folder; one begun earlier goes on")
    ],
    budget_minutes: Annotated[
        float | None, typer.Option(help="no run is begun after that", min=0)
    ] = None,
) -> None:
    """What neighbours do to work of known size on this machine, and what is seen meanwhile."""
    from forerun.data.collectors.interference.collection import Collection

    collection = Collection.open(plan, output)
    for line in collection.limits():
        progress(line)
    try:
        with progress_bar("runs", len(collection.todo())) as step:
            for _ in collection.run(budget_minutes=budget_minutes):
                step()
    finally:
        # Ctrl-C ends the collection, not what was collected.
        tables = collection.write_tables()
        counts = ", ".join(f"{name} {len(rows):,}" for name, rows in tables.items())
        progress(f"{counts or 'no'} rows in {output}")
