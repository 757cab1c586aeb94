"""`forerun promote` and `forerun retrain`: versions of the predictors, and which one answers."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forerun.data.errors import InputError, PromotionRefused
from forerun.service.cli import options as o
from forerun.service.cli.output import print_json, screen, table, working

if TYPE_CHECKING:
    from forerun.service.adaptation.retraining import Candidate
    from forerun.training.release.promotion import Difference


def promote(
    version: Annotated[int | None, typer.Argument()] = None,
    rollback: bool = False,
    force: bool = False,
    reason: str | None = None,
    candidate: bool = False,
    withdraw: bool = False,
    uri: str | None = None,
) -> None:
    """Make a registered version the champion, or go back to the previous one.

    A version is refused if it answers fewer questions than the champion (the bundled predictors
    where there is none), if its stored scores are worse by more than the variation over seeds, or
    if it was retrained and evaluated on no held-out measurement; the differences are printed as a
    table.

    Args:
        version: registered version
        rollback: go back to the previous champion, or to the bundled predictors
        force: promote although it is worse or was not evaluated; needs --reason
        reason: reason for --force, which is recorded
        candidate: try the version on shares of the service's questions (FORERUN_CANARY_SHARE,
            FORERUN_SHADOW_SHARE); the champion stays
        withdraw: end the trial of the candidate
        uri: MLflow tracking URI
    """
    from forerun.training.release import registry

    if sum((version is not None, rollback, withdraw)) != 1:
        raise InputError("Give a version to promote, or --rollback, or --withdraw; one of them.")
    if candidate and (version is None or force):
        raise InputError("--candidate needs a version, and no --force.")
    if force != bool(reason):
        raise InputError("--force needs --reason TEXT, and --reason needs --force.")
    if withdraw:
        registry.withdraw(uri)
        typer.echo("no version is on trial")
    elif version is not None and candidate:
        registry.try_out(version, uri)
        typer.echo(f"version {version} is the candidate")
        _say_who_follows(uri)
    else:
        _change(version, uri, reason)
        _say_who_follows(uri)


def _change(version: int | None, uri: str | None, reason: str | None) -> None:
    """Make a version the champion, the one before where none is given, and say which it is."""
    from forerun.training.release import registry

    if version is None:
        version = registry.rollback(uri)
    else:
        try:
            show_differences(registry.promote(version, uri, reason=reason))
        except PromotionRefused as refused:
            show_differences(refused.differences)
            raise
    said = "no version" if version is None else f"version {version}"
    bundled = "; the bundled predictors answer" if version is None else ""
    typer.echo(f"{said} is the champion{bundled}")


def _say_who_follows(uri: str | None) -> None:
    """Print the setting without which this user's commands and services do not use the champion."""
    from forerun.service.settings import Settings
    from forerun.training.tracking.runs import tracking_uri

    where = tracking_uri(uri)
    if Settings.load().registry_uri != where:
        typer.echo(
            f"commands and services follow it where FORERUN_REGISTRY_URI={where} is set, and "
            "here it is not",
            err=True,
        )


def show_differences(differences: Sequence["Difference"]) -> None:
    """Print the differences that a promotion makes as a table; nothing where there are none."""
    from forerun.training.release.promotion import EVALUATED

    if not differences:
        return
    heads = ("what", "score", "in use", "this version", "noise", "")
    rows = table(*heads, left=("what", "score", ""), title="against what is in use")
    for each in differences:
        unknown = each.field == EVALUATED
        ends = (None, None) if unknown else (each.before, each.after)
        figures = ("" if v is None else f"{v:.4g}" for v in ends)
        noise = f"{each.noise:.2g}" if each.noise else ""
        verdict = "NOT EVALUATED" if unknown else "LOST" if each.lost else ""
        rows.add_row(each.what, each.field, *figures, noise, verdict)
    screen().print(rows)


def retrain(
    device: list[str] | None = None,
    output: Path | None = None,
    track: bool = True,
    uri: str | None = None,
    json: o.Json = False,
) -> None:
    """Adapt the predictors in use to all stored measurements, and compare old and new.

    A quarter of the workloads is held out, always the same ones. Observations of a device from
    before its newest lasting change are left out. `forerun promote` puts the candidate into use.
    Repeated with the same measurements, nothing is computed or registered again.

    Args:
        device: only measurements of this device; repeatable [all]
        output: folder of the candidate [in FORERUN_HOME/retrained]
        track: log the run in MLflow and register it
        uri: MLflow tracking URI
        json: print one JSON object
    """
    from forerun.service.cli.retraining import retrained

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
    own = made.comparison
    title = f"adapted to {own.training_rows} measurements, evaluated on {own.held_out_rows}"
    if not own.slices:
        typer.echo(
            f"{title}\nnot evaluated: a quarter of the workloads is held out, and five held out "
            "are needed, so measure some twenty; a network counts once with all its batch sizes. "
            "`forerun promote` refuses this version without --force"
        )
        return
    rows = table("slice", "workloads", "in use", "candidate", "change, points", title=title)
    for each in own.slices:
        change = f"{each.low:+.1f} to {each.high:+.1f}"
        figures = (f"{each.before:.1f} %", f"{each.after:.1f} %", change)
        rows.add_row(each.name, str(each.groups), *figures)
    screen().print(rows)
