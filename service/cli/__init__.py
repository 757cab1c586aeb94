"""The command line, one module per command; heavy imports happen inside the commands."""

import os
import sys

import typer

from forerun.data.errors import InputError
from forerun.service.cli import (
    adapt,
    colocate,
    data,
    devices,
    evaluate,
    leaderboard,
    predict,
    rank,
    registry,
    serve,
    sweep,
    trace,
    train,
)
from forerun.service.cli.collect import group as collect
from forerun.service.cli.questions import presets

app = typer.Typer(
    name="forerun",
    help="What will this workload cost on that hardware: time, memory, power?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("serve")(serve.serve)
app.command("predict")(predict.predict)
app.command("presets")(presets.presets)
app.command("rank")(rank.rank)
app.command("sweep")(sweep.sweep)
app.command("colocate")(colocate.colocate)
app.add_typer(devices.app, name="devices")
app.add_typer(data.app, name="data")
app.add_typer(collect.app, name="collect")
app.command("trace")(trace.trace)
app.command("train")(train.train)
app.command("evaluate")(evaluate.evaluate)
app.command("adapt")(adapt.adapt)
app.command("leaderboard")(leaderboard.leaderboard)
app.command("promote")(registry.promote)


def main() -> None:
    """Run the command line; exit code 0, 2 for invalid input, 1 for an internal error."""
    try:
        app()
    except InputError as error:
        print(f"forerun: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if os.environ.get("FORERUN_DEBUG"):
            raise
        print(
            f"forerun: a fault of ours, {type(error).__name__}: {error}. "
            "FORERUN_DEBUG=1 shows where.",
            file=sys.stderr,
        )
        sys.exit(1)
