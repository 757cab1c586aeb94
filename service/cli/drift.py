"""`forerun drift`: live errors of the answers, and what changed on which device."""

from typing import TYPE_CHECKING, Annotated

import typer

from forerun.service.cli.output import print_json, screen

if TYPE_CHECKING:
    from forerun.service.schemas.observations import DriftOut, SliceOut


def drift(
    device: Annotated[str | None, typer.Option(help="name of a device [all]")] = None,
    track: Annotated[bool, typer.Option(help="log the report as a run in MLflow")] = False,
    uri: Annotated[str | None, typer.Option(help="MLflow tracking URI, with --track")] = None,
    json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Print how good the answers about observations were, and which slices have changed since."""
    from forerun.service.answers.drift import drift_here
    from forerun.service.settings import Settings

    report = drift_here(Settings.load(), device)
    if track:
        _track(report, uri)
    if json:
        print_json(report.model_dump(mode="json"))
        return
    if not report.observations:
        typer.echo("no observations are kept" + (f" of {device}" if device else ""))
        return
    _show(report)
    for alarm in report.alarms:
        screen().print(alarm.message, style="yellow", markup=False)
    if not report.alarms:
        typer.echo("no lasting change of 5 % or more was found")


def _show(report: "DriftOut") -> None:
    """Print each slice as a line of a table."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, title="answers against what was observed")
    heads = ("metric", "device", "slice", "rows", "error", "bias", "inside interval", "changed")
    for index, heading in enumerate(heads):
        table.add_column(heading, justify="right" if index > 2 else "left", no_wrap=True)
    for own in report.slices:
        live = own.live
        held = "" if live.coverage_90 is None else f"{live.coverage_90:.0f} %"
        figures = (str(own.rows), f"{live.mape:.1f} %", f"{live.bias:+.3f}", held)
        table.add_row(own.metric, own.device, _slice(own), *figures, _changed(own))
    screen().print(table)


def _slice(own: "SliceOut") -> str:
    given = (own.kind, own.family, own.precision)
    return " ".join(value for value in given if value) or "all"


def _changed(own: "SliceOut") -> str:
    return f"{own.changes[-1].percent:+.0f} %" if own.alarm else ""


def _track(report: "DriftOut", uri: str | None) -> None:
    """Log the live errors and the report as a run in MLflow."""
    from forerun.training.tracking import runs

    with runs.tracked("drift", uri, tags={"forerun.kind": "drift"}) as run:
        for own in report.slices:
            parts = (own.device, own.kind, own.family, own.precision, own.metric)
            live, name = own.live, "/".join(part for part in parts if part)
            scores = {"mape": live.mape, "bias": live.bias, "coverage_90": live.coverage_90}
            run.scores(name, {**scores, "n": live.rows, "alarm": int(own.alarm)})
        run.text("drift.json", report.model_dump_json(indent=1))
        run.text("alarms.txt", "".join(f"{alarm.message}\n" for alarm in report.alarms))
