"""`forerun collect`: measure the machine that it runs on."""

import typer

from forerun.service.cli import collect_cpu

app = typer.Typer(no_args_is_help=True, help="Measure the machine this runs on.")
app.command("cpu")(collect_cpu.cpu)
