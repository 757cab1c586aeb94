"""`forerun observe` and `forerun drift`: measurements that answers are compared with."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forerun.service.cli.output import print_json, screen

if TYPE_CHECKING:
    from forerun.service.schemas.measurements import DriftOut, ObservedOut, SliceOut


def observe(
    file: Annotated[Path, typer.Argument(help="measurements, .parquet, .csv or .json")],
    device: Annotated[str, typer.Option(help="name of the device")],
    graphs: Annotated[
        Path | None,
        typer.Option(help="folder of the networks' graphs [<table>-graphs next to the table]"),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="language model of a served run: name or config.json")
    ] = None,
    tensor: Annotated[int, typer.Option("--tp", help="devices that shared a layer", min=1)] = 1,
    engine: Annotated[str, typer.Option(help="engine that served it")] = "vllm",
    json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Store measurements as observations, and print how good the answers about them were.

    A file of the same measurements is stored once. `forerun drift` reports all of them.
    """
    from functools import partial

    from forerun.service.answers.adapting import observe_file
    from forerun.service.answers.observing import summary_of
    from forerun.service.cli.adapt import served
    from forerun.service.loading import adaptation_here
    from forerun.service.settings import Settings

    opens = partial(adaptation_here, Settings.load())
    done = observe_file(opens, device, file, graphs, served(model, tensor, engine))
    out = summary_of(done.observed.kept)
    if json:
        new = done.observed.is_new
        print_json({**out.model_dump(), "left_out": done.left_out, "new": new})
        return
    _show_observed(out)
    kept = "kept" if done.observed.is_new else "kept before, as they are now:"
    screen().print(
        f"{kept} {out.rows} observations of {out.device} as set {out.set}, {done.left_out} left "
        f"out; {out.judged} have an answer. All of them: forerun drift --device {out.device}"
    )


def _show_observed(out: "ObservedOut") -> None:
    """Print the errors of the answers as a table."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, title="answers against what was observed")
    for index, heading in enumerate(("metric", "rows", "error", "bias", "inside interval")):
        table.add_column(heading, justify="right" if index else "left", no_wrap=True)
    for name, error in out.errors.items():
        held = "" if error.coverage_90 is None else f"{error.coverage_90:.0f} %"
        table.add_row(name, str(error.rows), f"{error.mape:.1f} %", f"{error.bias:+.3f}", held)
    screen().print(table)


def drift(
    device: Annotated[str | None, typer.Option(help="name of a device [all]")] = None,
    version: Annotated[
        str | None,
        typer.Option(help="version of the predictors whose answers are scored, or all [in use]"),
    ] = None,
    track: Annotated[bool, typer.Option(help="log the report as a run in MLflow")] = False,
    uri: Annotated[str | None, typer.Option(help="MLflow tracking URI, with --track")] = None,
    json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Print how good the answers about observations were, and which slices have changed since."""
    from forerun.service.answers.drift import drift_here
    from forerun.service.loading import versions_at_hand
    from forerun.service.settings import Settings

    settings = Settings.load()
    report = drift_here(settings, device, version, versions_at_hand(settings))
    if track:
        _track(report, uri)
    if json:
        print_json(report.model_dump(mode="json"))
        return
    if not report.observations:
        typer.echo("no observations are kept" + (f" of {device}" if device else ""))
        return
    _show_drift(report)
    scored = {own.version for own in report.slices}
    if others := [name for name in report.versions if name not in scored]:
        typer.echo(f"not scored here: answers of {', '.join(others)}; --version all adds them")
    for alarm in report.alarms:
        screen().print(alarm.message, style="yellow", markup=False)
    if not report.alarms:
        typer.echo("no lasting change of 5 % or more was found")


def _show_drift(report: "DriftOut") -> None:
    """Print each slice as a line of a table."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, title="answers against what was observed")
    figures = ("rows", "error", "bias", "inside interval", "changed")
    heads = ("metric", "device", "version", "slice", *figures)
    for index, heading in enumerate(heads):
        table.add_column(heading, justify="right" if index > 3 else "left", no_wrap=True)
    for own in report.slices:
        live = own.live
        held = "" if live.coverage_90 is None else f"{live.coverage_90:.0f} %"
        cells = (str(own.rows), f"{live.mape:.1f} %", f"{live.bias:+.3f}", held)
        names = (own.metric, own.device, own.version or "", _slice(own))
        table.add_row(*names, *cells, _changed(own))
    screen().print(table)


def _slice(own: "SliceOut") -> str:
    given = (own.kind, own.family, own.precision)
    return " ".join(value for value in given if value) or "all"


def _changed(own: "SliceOut") -> str:
    return f"{own.changes[-1].percent:+.0f} %" if own.alarm else ""


def _track(report: "DriftOut", uri: str | None) -> None:
    """Log the live errors and the report as a run in MLflow."""
    from forerun.training.tracking import runs

    several = len({own.version for own in report.slices}) > 1
    with runs.tracked("drift", uri, tags={"forerun.kind": "drift"}) as run:
        for own in report.slices:
            version = own.version if several else None
            parts = (version, own.device, own.kind, own.family, own.precision, own.metric)
            live, name = own.live, "/".join(part for part in parts if part)
            scores = {"mape": live.mape, "bias": live.bias, "coverage_90": live.coverage_90}
            run.scores(name, {**scores, "n": live.rows, "alarm": int(own.alarm)})
        run.text("drift.json", report.model_dump_json(indent=1))
        run.text("alarms.txt", "".join(f"{alarm.message}\n" for alarm in report.alarms))
