"""The commands by name; the module of one is imported when it is named, or listed by `--help`."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pkgutil import resolve_name
from typing import Any, ClassVar, Final

import typer
from typer.core import TyperCommand, TyperGroup

from forerun.data.errors import InputError

COMMANDS: Final[Mapping[str, str]] = {
    "serve": "serve:serve",
    "predict": "questions.predict:predict",
    "batch": "questions.batch:batch",
    "presets": "questions.request_file:presets",
    "rank": "questions.rank:rank",
    "sweep": "questions.sweep:sweep",
    "colocate": "questions.colocate:colocate",
    "llm": "llm:app",
    "trace": "trace:trace",
    "train": "train:train",
    "train-step": "llm.training:train_step",
    "train-plan": "llm.training:train_plan",
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


WORDS: Final = "forerun.words"
"""Key under which a context keeps the words that a command was called with."""


FIELD: Final = re.compile(r"(?<![\w.`-])[a-z]+(?:_[a-z0-9]+)+(?![\w.`])")
"""The name of a field in a message, of several words; one word may as well be English."""


def in_options(text: str, context: Any) -> str:
    """A message with the options of a command in place of the fields that they set."""
    named = {own.name: own.opts[0] for own in context.command.params if own.opts[0][0] == "-"}
    return FIELD.sub(lambda found: named.get(found[0], found[0]), text)


class NamingCommand(TyperCommand):
    """A command that keeps the words that it was called with, and whose messages name its options.

    They do where an option that they name was typed; what a file says keeps its name.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The words after the options."""
        ctx.meta[WORDS] = tuple(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except InputError as error:
            said = in_options(str(error), ctx)
            if any(word.partition("=")[0] in said.split() for word in ctx.meta[WORDS]):
                error.args = (said,)
            raise


@cache
def _command(name: str, where: str) -> Any:
    """The command of `module:object` in this package, as typer makes it."""
    found = resolve_name(f"forerun.service.cli.{where}")
    if isinstance(found, typer.Typer):
        group = typer.main.get_group(found)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, cls=NamingCommand)(found)
    return typer.main.get_command(alone)


class ImportedWhenNamed(Mapping[str, Any]):
    """Commands by name, such as `COMMANDS`; each is imported when it is looked up."""

    def __init__(self, commands: Mapping[str, str]) -> None:
        self._commands = commands

    def __getitem__(self, name: str) -> Any:
        return _command(name, self._commands[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._commands)

    def __len__(self) -> int:
        return len(self._commands)


class ForerunGroup(TyperGroup):
    """The commands of `forerun`."""

    NAMES: ClassVar[Mapping[str, str]] = COMMANDS

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = ImportedWhenNamed(self.NAMES)  # type: ignore[assignment]
