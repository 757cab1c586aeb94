"""`forerun collect NAME`: measure with a collector of another installed package."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from forerun.data.collectors.runner.collector import Collector
    from forerun.data.device import Device

GROUP = "forerun.collectors"


class CollectGroup(TyperGroup):
    """The commands of `forerun collect`, and one for each collector of an installed package."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the commands; forerun's own come first and cannot be replaced."""
        from forerun.data.plugins import plugins_by_name

        return list(dict.fromkeys((*super().list_commands(ctx), *plugins_by_name(GROUP))))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name; None where there is none.

        Raises:
            BrokenPlugin: the collector of that name cannot be loaded.
        """
        from forerun.data.plugins import plugin

        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        cls = plugin(GROUP, cmd_name)
        return None if cls is None else _command(cmd_name, cls)


def _command(name: str, cls: "type[Collector]") -> Any:
    """The command that measures with a collector, which is made without arguments."""

    def measure(
        output: Annotated[
            Path, typer.Option("--output", "-o", help="table to write, .parquet or .csv")
        ],
        budget_minutes: Annotated[
            float,
            typer.Option(help="time budget; no trial is started that would end later", min=0.05),
        ] = 30.0,
        json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
    ) -> None:
        from forerun.service.cli.collect.shared import run_collector

        run_collector(cls(), output, budget_minutes, _unregistered, json)

    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command(name, help=(cls.__doc__ or "").partition("\n")[0])(measure)
    return typer.main.get_command(app)


def _unregistered(name: str) -> "Device":
    """Refuse a device without a spec sheet: forerun cannot tell what another package measures.

    Raises:
        InputError: always.
    """
    from forerun.data.errors import InputError

    raise InputError(f"No device is named {name!r}; add its spec sheet by `forerun devices add`.")
