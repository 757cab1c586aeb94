"""`forerun collect circuit`: designs through synthesis, placement and routing for an iCE40 FPGA."""

from pathlib import Path
from typing import Annotated

import typer

from forerun.service.cli.output import progress, progress_bar


def circuit(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="folder of the collection; an existing one is resumed"),
    ],
    plan: Annotated[
        Path | None, typer.Option(help="plan of designs and seeds, a .yaml file [480 designs]")
    ] = None,
    jobs: Annotated[int, typer.Option(help="designs that are made at a time", min=1)] = 1,
    budget_minutes: Annotated[
        float | None, typer.Option(help="time budget; no design is begun after it", min=0)
    ] = None,
) -> None:
    """Make circuits with yosys and nextpnr-ice40: the delay of every net, frequency, resources."""
    from forerun.data.collectors.circuits.collection import Collection
    from forerun.data.collectors.circuits.tools import STANDARD

    collection = Collection.open(output, plan or STANDARD)
    try:
        with progress_bar("designs", len(collection.todo())) as step:
            for made in collection.run(jobs=jobs, budget_minutes=budget_minutes):
                if made.problem:
                    progress(made.problem)
                step()
    finally:
        # The tables are also written when the collection is interrupted.
        counts = collection.write_tables()
        rows = ", ".join(f"{name} {number:,}" for name, number in counts.items())
        left = len(collection.todo())
        progress(
            f"{rows or 'no'} rows in {output}" + (f"; {left:,} designs are left" if left else "")
        )
