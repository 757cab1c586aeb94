"""`forerun presets`: named questions of every kind of workload, and networks known by name."""

from dataclasses import asdict
from typing import Annotated

import typer

from forerun.service.cli import options as o
from forerun.service.cli.output import print_json, screen


def presets(
    name: Annotated[str | None, typer.Argument(help="preset whose request is printed")] = None,
    json: o.Json = False,
) -> None:
    """List questions to try first; `forerun predict NAME` answers one."""
    from forerun.data.named.networks import network_names
    from forerun.service.cli.answer_table import table
    from forerun.service.presets import preset_named
    from forerun.service.presets import presets as known

    if name is not None:
        print_json(preset_named(name).request)
        return
    if json:
        print_json({"presets": [asdict(preset) for preset in known()]})
        return
    rows = table("preset", "kind")
    rows.add_column("question")
    for preset in known():
        rows.add_row(preset.name, preset.kind, preset.title)
    screen().print(rows)
    screen().print(f"networks by name: {', '.join(network_names())}", markup=False)
