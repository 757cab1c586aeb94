"""The commands by name; the module of one is imported when it is named, or listed by `--help`."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pkgutil import resolve_name
from typing import Any, ClassVar, Final, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from forerun.data.errors import InputError, UnknownDevice
from forerun.service.requests.field_names import renamed
from forerun.service.requests.flat_fields import named

Verb = TypeVar("Verb", bound=Callable[..., None])
COMMANDS: Final[Mapping[str, str]] = {
    "serve": "serve:serve",
    "predict": "questions.predict:predict",
    "batch": "questions.batch:batch",
    "mcp": "mcp:mcp",
    "presets": "questions.predict:presets",
    "rank": "questions.rank:rank",
    "sweep": "questions.rank:sweep",
    "pipeline": "questions.pipeline:pipeline",
    "colocate": "questions.colocate:colocate",
    "check": "check:check",
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


FURTHER: Final = "forerun.further"
"""Key under which a context keeps fields that parts of options set -> how to write those."""


def in_options(text: str, context: Any) -> str:
    """A message with the options of a command in place of the fields that they set."""
    return renamed(text, flags(context))


def flags(context: Any) -> dict[str, str]:
    """Field -> the option of a command that sets it: as it was typed, else by its first name.

    Those that were typed come first.
    """
    words = {word.partition("=")[0] for word in context.meta.get(WORDS, ())}
    found = {
        own.name: next(filter(words.__contains__, (*own.opts, *own.secondary_opts)), own.opts[0])
        for own in context.command.params
        if own.opts[0][0] == "-"
    }
    typed_first = sorted(found.items(), key=lambda item: item[1] not in words)
    return {**dict(typed_first), **context.meta.get(FURTHER, {})}


ARGUMENT: Final = re.compile(r"^ +(\w+): (.+(?:\n {8,}.+)*)", re.MULTILINE)
"""An argument and its description in a docstring."""


class _Described:
    """Options and arguments have the help that the docstring of their function gives."""

    help: str | None
    params: list[Any]
    callback: Callable[..., Any] | None

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.help = (self.help or "").partition("\n\nArgs:\n")[0]
        described = inspect.cleandoc(getattr(self.callback, "__doc__", None) or "")
        texts = dict(ARGUMENT.findall(described.partition("\n\nArgs:\n")[2].partition("\n\n")[0]))
        for own in self.params:
            if getattr(own, "help", "") is None and own.name in texts:
                own.help = " ".join(texts[own.name].split())


class DescribedCommand(_Described, TyperCommand):
    """A command whose options are described by its docstring."""


class DescribedGroup(_Described, TyperGroup):
    """A group of commands whose own options are described by its docstring."""


class DescribedCommands(typer.Typer):
    """A group of commands, each of which is a `DescribedCommand`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"cls": DescribedGroup, **settings}, rich_markup_mode=None)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Verb], Verb]:
        """Add a command; arguments are those of typer."""
        return super().command(name, **{"cls": DescribedCommand, **settings})


class NamingCommand(DescribedCommand):
    """A command that keeps the words that it was called with, and whose messages name its options.

    They do where an option that they name was typed, or is to be given; what a file says keeps its
    name.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The words after the options. A model may be named by `--model`, as engines do."""
        ctx.meta[WORDS] = tuple(args)
        if any(own.opts == ["model"] for own in self.params):
            args = [own.removeprefix("--model=") for own in args if own != "--model"]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except InputError as error:
            said = in_options(str(error), ctx)
            typed = any(word.partition("=")[0] in said.split() for word in ctx.meta[WORDS])
            if typed or "give --" in said:
                error.args = (said,)
            if isinstance(error, UnknownDevice) and not error.field and ctx.params.get("device"):
                error.field = ("device",)
            path = ".".join(own for own in error.field if isinstance(own, str))
            option = flags(ctx).get(named(path), "")
            if option not in str(error) and not str(error).startswith("--"):
                error.args = (f"{option}: {error}",)
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
