"""`forerun promote`: choose the registered version that answers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from forerun.service.cli.output import screen

if TYPE_CHECKING:
    from forerun.training.release.promotion import Difference


def promote(
    version: Annotated[int | None, typer.Argument(help="registered version")] = None,
    rollback: Annotated[bool, typer.Option(help="go back to the previous champion")] = False,
    force: Annotated[
        bool, typer.Option(help="promote although a score gets worse; needs --reason")
    ] = False,
    reason: Annotated[
        str | None, typer.Option(help="reason for --force, which is recorded")
    ] = None,
    uri: Annotated[str | None, typer.Option(help="MLflow tracking URI")] = None,
) -> None:
    """Make a registered version the champion, or go back to the previous one.

    A version is refused if it answers less than the champion (the bundled predictors where there
    is none), or if its stored scores are worse by more than the variation over seeds; the
    differences are printed as a table.
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


def show_differences(differences: Sequence["Difference"]) -> None:
    """Print the differences that a promotion makes as a table; nothing where there are none."""
    from rich.table import Table

    if not differences:
        return
    table = Table(box=None, pad_edge=False, title="against what is in use")
    for heading in ("what", "score", "in use", "this version", "noise", ""):
        table.add_column(heading, justify="left" if heading in ("what", "score", "") else "right")
    for each in differences:
        figures = ("" if v is None else f"{v:.4g}" for v in (each.before, each.after))
        noise = f"{each.noise:.2g}" if each.noise else ""
        table.add_row(each.what, each.field, *figures, noise, "LOST" if each.lost else "")
    screen().print(table)
