"""`forerun promote`: which registered version answers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from forerun.service.cli.output import screen

if TYPE_CHECKING:
    from forerun.training.release.promotion import Difference


def promote(
    version: Annotated[int | None, typer.Argument(help="registered version")] = None,
    rollback: Annotated[bool, typer.Option(help="go back to the champion before")] = False,
    force: Annotated[
        bool, typer.Option(help="promote although it loses something; needs --reason")
    ] = False,
    reason: Annotated[str | None, typer.Option(help="why, for the record")] = None,
    uri: Annotated[str | None, typer.Option(help="MLflow tracking URI")] = None,
) -> None:
    """Make a registered version the champion, or go back to the one before.

    A version that answers less than the champion, or whose stored scores are worse by more than
    seeds explain, is refused; the differences are shown as a table.
    """
    from forerun.data.errors import InputError, PromotionRefused
    from forerun.training.release import registry

    if (version is None) == (not rollback):
        raise InputError("Give a version to promote, or --rollback; not both.")
    if force != bool(reason):
        raise InputError("--force needs --reason TEXT, and --reason needs --force.")
    if version is not None:
        try:
            show_differences(registry.promote(version, uri, reason=reason))
        except PromotionRefused as refused:
            show_differences(refused.differences)
            raise
    else:
        version = registry.rollback(uri)
    typer.echo(f"version {version} is the champion")


def show_differences(found: Sequence["Difference"]) -> None:
    """A table of what a promotion changes; nothing where it changes nothing."""
    from rich.table import Table

    if not found:
        return
    table = Table(box=None, pad_edge=False, title="against the champion")
    for heading in ("what", "score", "champion", "this version", "noise", ""):
        table.add_column(heading, justify="left" if heading in ("what", "score", "") else "right")
    for one in found:
        figures = ("" if v is None else f"{v:.4g}" for v in (one.before, one.after))
        noise = f"{one.noise:.2g}" if one.noise else ""
        table.add_row(one.what, one.field, *figures, noise, "LOST" if one.lost else "")
    screen().print(table)
