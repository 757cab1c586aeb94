"""The commands by name; the module of one is imported when it is named, or listed by `--help`."""

from collections.abc import Iterator, Mapping
from functools import cache
from pkgutil import resolve_name
from typing import Any, Final

import typer
from typer.core import TyperGroup

COMMANDS: Final[Mapping[str, str]] = {
    "serve": "serve:serve",
    "predict": "questions.predict:predict",
    "batch": "questions.batch:batch",
    "presets": "questions.request_file:presets",
    "rank": "questions.rank:rank",
    "sweep": "questions.sweep:sweep",
    "colocate": "questions.colocate:colocate",
    "llm": "llm.group:app",
    "trace": "trace:trace",
    "train": "train:train",
    "evaluate": "evaluate:evaluate",
    "adapt": "adapt:adapt",
    "observe": "adapt:observe",
    "drift": "adapt:drift",
    "retrain": "versions:retrain",
    "verify": "collect.verify:verify",
    "promote": "versions:promote",
    "devices": "devices:app",
    "keys": "keys:app",
    "database": "database:app",
    "data": "data:app",
    "collect": "collect.group:app",
    "leaderboard": "leaderboard:app",
}
"""Name -> `module:object` in this package: a function, or the app of a group of commands."""


@cache
def command_named(name: str) -> Any:
    """The command of a name in `COMMANDS`, as typer makes it.

    Raises:
        KeyError: no command has that name.
    """
    found = resolve_name(f"forerun.service.cli.{COMMANDS[name]}")
    if isinstance(found, typer.Typer):
        group = typer.main.get_group(found)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name)(found)
    return typer.main.get_command(alone)


class ImportedWhenNamed(Mapping[str, Any]):
    """The commands of `COMMANDS`; each is imported when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        return command_named(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class ForerunGroup(TyperGroup):
    """The commands of `forerun`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = ImportedWhenNamed()  # type: ignore[assignment]
