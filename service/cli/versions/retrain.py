"""`forerun retrain`: a candidate adapted to stored measurements, compared with what answers now."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forerun.service.cli.output import print_json, screen, working

if TYPE_CHECKING:
    from forerun.service.adaptation.retraining import Candidate


def retrain(
    device: Annotated[
        list[str] | None, typer.Option(help="only measurements of this device; repeatable [all]")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="folder of the candidate [in FORERUN_HOME/retrained]")
    ] = None,
    track: Annotated[bool, typer.Option(help="log the run in MLflow and register it")] = True,
    uri: Annotated[str | None, typer.Option(help="MLflow tracking URI")] = None,
    json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Adapt the predictors in use to all stored measurements, and compare both on held-out ones.

    A quarter of the workloads is held out, always the same ones. Observations of a device from
    before its newest lasting change are left out. `forerun promote` puts the candidate into use.
    Repeated with the same measurements, nothing is computed or registered again.
    """
    from forerun.service.cli.versions.retraining import retrained

    with working("retraining"):
        made, version = retrained(tuple(device or ()), output, track=track, uri=uri)
    if json:
        print_json(_object(made, version))
        return
    _show(made)
    registered = "" if version is None else f", registered as version {version}"
    typer.echo(f"{made.folder}: {made.version}{registered}")


def _object(made: "Candidate", version: int | None) -> dict[str, Any]:
    return {
        "folder": str(made.folder),
        "version": made.version,
        "registered": version,
        "comparison": made.comparison.model_dump(),
    }


def _show(made: "Candidate") -> None:
    """Print the comparison as a table."""
    from rich.table import Table

    own = made.comparison
    title = f"adapted to {own.training_rows} measurements, evaluated on {own.held_out_rows}"
    if not own.slices:
        typer.echo(
            f"{title}\nnot evaluated: too few workloads are held out; `forerun promote` "
            "refuses it without --force"
        )
        return
    table = Table(box=None, pad_edge=False, title=title)
    for heading in ("slice", "workloads", "in use", "candidate", "change, points"):
        table.add_column(heading, justify="left" if heading == "slice" else "right")
    for each in own.slices:
        change = f"{each.low:+.1f} to {each.high:+.1f}"
        figures = (f"{each.before:.1f} %", f"{each.after:.1f} %", change)
        table.add_row(each.name, str(each.groups), *figures)
    screen().print(table)
