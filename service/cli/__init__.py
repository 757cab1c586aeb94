"""The command line, one module per command; heavy imports happen inside the commands."""

import gc
import os
import sys
import traceback
from typing import Annotated

import typer

from forerun import __version__
from forerun.data.errors import InputError
from forerun.service.cli.commands import ForerunGroup

ALLOCATIONS_TO_COLLECT = 100_000
"""Objects made between two searches for reference cycles, in place of Python's own 700: a command
makes many objects that live until its end, and searches among them find nothing to free."""

app = typer.Typer(
    name="forerun",
    cls=ForerunGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"forerun {__version__}")
        raise typer.Exit


@app.callback()
def forerun(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="print it")
    ] = False,
) -> None:
    """What will this workload cost on that hardware: time, memory, power?"""


def main() -> None:
    """Run the command line; exit code 0, 2 for invalid input, 1 for an internal error."""
    gc.set_threshold(ALLOCATIONS_TO_COLLECT)
    try:
        app()
    except InputError as error:
        if error.__cause__ is not None and os.environ.get("FORERUN_DEBUG"):
            traceback.print_exception(error.__cause__)
        print(f"forerun: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if os.environ.get("FORERUN_DEBUG"):
            raise
        print(
            f"forerun: internal error, {type(error).__name__}: {error}. FORERUN_DEBUG=1 shows "
            "where.",
            file=sys.stderr,
        )
        sys.exit(1)
