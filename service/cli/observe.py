"""`forerun observe`: store measurements that judge the answers and never change them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forerun.service.cli.output import print_json, screen

if TYPE_CHECKING:
    from forerun.service.schemas.observations import ObservedOut


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
    from forerun.service.answers.observing import judged
    from forerun.service.cli.adapt import served
    from forerun.service.loading import adaptation_here
    from forerun.service.settings import Settings

    opens = partial(adaptation_here, Settings.load())
    done = observe_file(opens, device, file, graphs, served(model, tensor, engine))
    out = judged(done.observed.kept)
    if json:
        new = done.observed.is_new
        print_json({**out.model_dump(), "left_out": done.left_out, "new": new})
        return
    _show(out)
    kept = "kept" if done.observed.is_new else "kept before, as they are now:"
    screen().print(
        f"{kept} {out.rows} observations of {out.device} as set {out.set}, {done.left_out} left "
        f"out; {out.judged} have an answer. All of them: forerun drift --device {out.device}"
    )


def _show(out: "ObservedOut") -> None:
    """Print the errors of the answers as a table."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, title="answers against what was observed")
    for index, heading in enumerate(("metric", "rows", "error", "bias", "inside interval")):
        table.add_column(heading, justify="right" if index else "left", no_wrap=True)
    for name, error in out.errors.items():
        held = "" if error.coverage_90 is None else f"{error.coverage_90:.0f} %"
        table.add_row(name, str(error.rows), f"{error.mape:.1f} %", f"{error.bias:+.3f}", held)
    screen().print(table)
