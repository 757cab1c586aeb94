"""`forerun promote`: which registered version answers."""

from typing import Annotated

import typer


def promote(
    version: Annotated[int | None, typer.Argument(help="registered version")] = None,
    rollback: Annotated[bool, typer.Option(help="go back to the champion before")] = False,
    uri: Annotated[str | None, typer.Option(help="MLflow tracking URI")] = None,
) -> None:
    """Make a registered version the champion, or go back to the one before."""
    from forerun.data.errors import InputError
    from forerun.training import registry

    if (version is None) == (not rollback):
        raise InputError("Give a version to promote, or --rollback; not both.")
    if version is not None:
        registry.promote(version, uri)
    else:
        version = registry.rollback(uri)
    typer.echo(f"version {version} is the champion")
