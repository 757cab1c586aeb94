"""Output of the commands: results on standard output, progress on standard error."""

import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from math import isfinite
from threading import Timer
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from rich.console import Console
from rich.markup import escape

from forerun.service.cli.commands import in_options

if TYPE_CHECKING:
    from rich.table import Table

    from forerun.service.python.view import Answered, View
    from forerun.service.schemas.answers import LimitedAnswerOut, LimitOut

PIPE_WIDTH = 10_000


def print_json(content: Any) -> None:
    """Print one JSON object on standard output; numbers that are not finite become null.

    Args:
        content: an answer, or plain content that may hold answers.
    """
    sys.stdout.write(json.dumps(_finite(content), indent=1, allow_nan=False) + "\n")


def _finite(content: Any) -> Any:
    if isinstance(content, BaseModel):
        content = content.model_dump()
    if isinstance(content, Mapping):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not isfinite(content) else content


def screen() -> Console:
    """A console on standard output; without colour and line breaks where it is not a terminal."""
    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, soft_wrap=True, width=PIPE_WIDTH)


def progress(line: str) -> None:
    """Print one line on standard error."""
    Console(stderr=True, highlight=False).print(line, style="dim", markup=False, soft_wrap=True)


def table(*headings: str, left: "Collection[str] | None" = None, **settings: Any) -> "Table":
    """An empty table.

    Args:
        headings: its columns.
        left: columns that are left-aligned; the first when None. The others are right-aligned.
        settings: further settings of rich, such as `title`.
    """
    from forerun.service.python.fitted_table import FittedTable

    return FittedTable(headings, headings[:1] if left is None else tuple(left), **settings)


def show(view: "View", limits: "Iterable[LimitOut]" = (), context: Any = None) -> None:
    """Print a result as Python shows it, and each of its limits once.

    Args:
        view: the result.
        limits: limits of the answer.
        context: of the command, whose options stand in place of the fields that they set; None
            where fields keep their names.
    """
    out, named = screen(), str if context is None else partial(in_options, context=context)
    out.print(f"\n[bold]{escape(view.title)}[/bold]")
    if view.rows:
        out.print(replace(view, rows=[[*map(named, row)] for row in view.rows]).table())
    for line in view.lines:
        out.print(named(line), markup=False)
    for heading, message in dict.fromkeys((own.heading, own.message) for own in limits):
        out.print(f"[yellow]{heading}:[/yellow] {escape(named(message))}")


def show_answer(
    kind: "type[Answered]",
    title: str,
    out: "LimitedAnswerOut",
    *,
    explain: bool,
    json: bool,
    context: Any,
) -> None:
    """Print an answer as a JSON object, or as Python shows it.

    Args:
        kind: record that shows it.
        title: what it is about.
        out: the answer.
        explain: whether its limits are printed too.
        json: whether it is printed as a JSON object.
        context: as for `show`.
    """
    if json:
        print_json(out)
    else:
        show(kind.of(out, title=title).view(), out.limit_details if explain else (), context)


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Callable[[], None]]:
    """A progress bar on standard error, with a function to call after each of `total` steps.

    Where standard error is not a terminal, only the last state is printed.
    """
    from rich import progress as rich

    columns = (rich.TextColumn("{task.description}"), rich.BarColumn(), rich.MofNCompleteColumn())
    on = Console(stderr=True)
    with rich.Progress(*columns, rich.TimeRemainingColumn(), console=on) as bar:
        task = bar.add_task(title, total=total)
        yield lambda: bar.advance(task)


@contextmanager
def working(title: str, after_s: float = 2.0) -> Iterator[None]:
    """Say on standard error what takes long, and for how long it has taken, until it is done.

    Nothing is printed where standard error is not a terminal.

    Args:
        title: what is being done.
        after_s: time that may pass before anything is printed, seconds.
    """
    if not sys.stderr.isatty():
        yield
        return
    with ExitStack() as shown:
        begin = Timer(after_s, lambda: shown.enter_context(_clock(title)))
        begin.daemon = True
        begin.start()
        try:
            yield
        finally:
            begin.cancel()
            begin.join()


@contextmanager
def _clock(title: str) -> Iterator[None]:
    """A line on standard error with the time that has passed, which vanishes at the end."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        bar.add_task(title, total=None)
        yield
