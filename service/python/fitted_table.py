"""Tables on a console that lose no figure, however narrow the console is."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

LONGEST_FIGURE: Final = 30
"""Width from which on cells of a column count as sentences, characters."""
LEAST_OF_SENTENCES: Final = 20
"""Width that such a column keeps, characters."""


class FittedTable(Table):
    """A table that wraps sentences where it is too wide, and else makes each row a paragraph."""

    def __init__(self, headings: Sequence[str], left: Sequence[str], **settings: Any) -> None:
        """An empty table.

        Args:
            headings: its columns.
            left: columns that are left-aligned; the others are right-aligned.
            settings: further settings of rich, such as `title`.
        """
        super().__init__(box=None, pad_edge=False, **settings)
        for heading in headings:
            side: Any = "left" if heading in left else "right"
            self.add_column(Text(heading), justify=side, no_wrap=True)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table as wide as it is, with wrapped sentences, or as paragraphs."""
        cells = [[column.header, *column.cells] for column in self.columns]
        widths = [max(console.measure(each).maximum for each in own) for own in cells]
        room = options.max_width - 2 * (len(widths) - 1)
        least = [own if own <= LONGEST_FIGURE else LEAST_OF_SENTENCES for own in widths]
        if sum(least) > room:
            yield from self._paragraphs(console, cells)
            return
        self.columns = [
            replace(column, no_wrap=False, justify="left")
            if sum(widths) > room and width > LONGEST_FIGURE
            else column
            for column, width in zip(self.columns, widths, strict=True)
        ]
        yield from super().__rich_console__(console, options)

    def _paragraphs(self, console: Console, cells: Sequence[Sequence[Any]]) -> RenderResult:
        if self.title:
            yield Text(str(self.title), style="italic")
        (_, *headings), *rows = zip(*cells, strict=True)
        for first, *others in rows:
            named = [
                f"{_plain(console, heading)} {text}".strip()
                for heading, own in zip(headings, others, strict=True)
                if (text := _plain(console, own))
            ]
            yield Text.assemble((_plain(console, first), "bold"), ": ", ", ".join(named))


def _plain(console: Console, cell: Any) -> str:
    """A cell as text without its markup."""
    return cell.plain if isinstance(cell, Text) else console.render_str(str(cell)).plain
