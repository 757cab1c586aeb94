"""Result tables in README and docs, generated from stored evaluations: `make figures`.

A document marks the place of a table by `<!-- figures: NAME -->` and `<!-- end -->`. The text in
between is replaced by the table of that name (`training/reports/table_contents.py`), made from the
scoreboard. `NAME` may also be `tasks DATASET [PROTOCOL]`: all tasks of a dataset, or of its
protocols whose names begin with PROTOCOL; where no evaluation is stored, a sentence says so.
`standings`, `losses` and `headlines` compare tasks (`training/reports/standings.py`). A test checks
that every marked table is up to date.
"""

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from forerun.data.errors import BadTable, InputError
from forerun.training.evaluation.stored import scoreboard
from forerun.training.leaderboard.entries import HIGHER_IS_BETTER
from forerun.training.leaderboard.store import score_of
from forerun.training.reports.standings import headlines, losses, standings
from forerun.training.reports.table_contents import (
    HELD,
    INTERVALS,
    MEDIAN,
    ROWS,
    TABLES,
    Column,
    FigureTable,
    Line,
)

Evaluations = Sequence[Mapping[str, Any]]
MARKED: Final = re.compile(
    r"<!-- figures: (?P<name>[^>]+?) -->\n(?P<table>.*?)(?P<end><!-- end -->)", re.DOTALL
)
DOCUMENTS: Final = ("README.md", "docs/**/*.md")
NOT_SCORED: Final = "Not scored so far: `make scoreboard TABLES={dataset}`."
UNANSWERED: Final = "Whole answers give no value for any of these rows."
COMPARED: Final = {"standings": standings, "losses": losses, "headlines": headlines}


def with_tables(text: str, evaluations: Evaluations) -> str:
    """A document with all marked tables regenerated.

    Raises:
        InputError: a mark names an unknown table, or has no end.
    """
    begun, ended = text.count("<!-- figures:"), len(MARKED.findall(text))
    if begun != ended:
        raise BadTable(f"{begun} tables of figures begin, and {ended} of them end in <!-- end -->.")
    return MARKED.sub(
        lambda m: f"<!-- figures: {m['name']} -->\n{table(m['name'], evaluations)}\n{m['end']}",
        text,
    )


def table(name: str, evaluations: Evaluations) -> str:
    """One table as Markdown, without a line break at its end; tasks without a score are left out.

    Raises:
        InputError: no table has that name.
    """
    kind, *words = name.split()
    if kind == "tasks" and 1 <= len(words) <= 2:
        return _every_task(words[0], words[1] if len(words) > 1 else None, evaluations)
    if name in COMPARED:
        return COMPARED[name](evaluations)
    if name not in TABLES:
        known = ", ".join([*TABLES, *COMPARED, "tasks DATASET [PROTOCOL]"])
        raise InputError(f"No table of figures {name!r}; there are {known}.")
    return rendered(TABLES[name], evaluations)


def rendered(spec: FigureTable, evaluations: Evaluations) -> str:
    """A table as Markdown; tasks without a score and columns without a figure are left out."""
    found = [(line, _row(spec.dataset, line, evaluations)) for line in spec.lines]
    rows = [(line, row) for line, row in found if row is not None]
    if not rows:
        return NOT_SCORED.format(dataset=spec.dataset)
    if not any(row["n"] for _, row in rows):
        return UNANSWERED
    columns = [c for c in spec.columns if any(_value(row, c.field) is not None for _, row in rows)]
    lines = [[spec.heading, *(column.heading for column in columns)]]
    lines.append(["---", *("---:" for _ in columns)])
    lines += [[line.text, *_cells(row, columns)] for line, row in rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _row(dataset: str, line: Line, evaluations: Evaluations) -> Mapping[str, Any] | None:
    """The first stored row of a line; None where no evaluation has one."""
    for evaluation in evaluations:
        for row in evaluation["tasks"] if evaluation["dataset"] == dataset else ():
            place = (row["task"], row["device"], line.metric or row["metric"])
            if place == (line.task, line.device, row["metric"]):
                found: Mapping[str, Any] = row
                return found
    return None


def _cells(row: Mapping[str, Any], columns: Sequence[Column]) -> list[str]:
    """Figures of a row as text; the best of the competing columns is set in bold."""
    values = [_value(row, column.field) for column in columns]
    rivals = [
        (value, place)
        for place, (value, column) in enumerate(zip(values, columns, strict=True))
        if column.competes and value is not None
    ]
    best = None
    if len(rivals) > 1:
        pick = max if columns[rivals[0][1]].field in HIGHER_IS_BETTER else min
        best = pick(rivals)[1]
    return [
        f"**{column.text(value)}**" if place == best else column.text(value)
        for place, (value, column) in enumerate(zip(values, columns, strict=True))
    ]


def _value(row: Mapping[str, Any], field: str) -> float | None:
    """A field of a row, or of a mapping in it: `baselines.roofline`."""
    outer, _, inner = field.partition(".")
    found = row.get(outer)
    if inner:
        found = (found or {}).get(inner)
    return None if found is None else float(found)


def _every_task(dataset: str, protocol: str | None, evaluations: Evaluations) -> str:
    """A table of all tasks of a dataset, with every baseline that any of them has."""
    rows = [
        row
        for evaluation in evaluations
        if evaluation["dataset"] == dataset
        for row in evaluation["tasks"]
        if protocol is None or row["task"].startswith(protocol)
    ]
    if not rows:
        return NOT_SCORED.format(dataset=dataset)
    return rendered(_task_table(dataset, rows), evaluations)


def _task_table(dataset: str, rows: Evaluations) -> FigureTable:
    """Specification of a table with one line for each of these rows."""
    names = dict.fromkeys(n for row in rows for n in row["baselines"])
    score = score_of(dataset, rows[0])
    baselines = [
        Column(name.replace("_", " "), f"baselines.{name}", competes=True)
        for name in (names if score == "mape" else ())
    ]
    lines = {
        (row["task"], row["device"], row["metric"]): Line(
            " ".join(filter(None, (row["task"], row["device"], row["metric"]))),
            row["task"],
            row["device"],
            row["metric"],
        )
        for row in rows
    }
    percent = score in ("mape", "median_ape")
    columns = (
        ROWS,
        Column("forerun", score, "%" if percent else "", 1 if percent else 3, competes=True),
        *((MEDIAN,) if score == "mape" else ()),
        *baselines,
        *HELD,
        *INTERVALS,
    )
    return FigureTable(dataset, "task", tuple(lines.values()), columns)


def documents(root: Path) -> list[Path]:
    """Documents of a repository that may hold tables of figures."""
    return sorted(path for pattern in DOCUMENTS for path in root.glob(pattern))


def main(arguments: Sequence[str] | None = None) -> int:
    """Regenerate the tables of the documents named, by default of README.md and docs.

    Returns:
        Exit code: 0, or 2 with one line on standard error.
    """
    parser = argparse.ArgumentParser(prog="python -m forerun.training.reports.results_tables")
    parser.add_argument("documents", nargs="*", type=Path, help="Markdown files")
    given = parser.parse_args(arguments)
    try:
        evaluations = scoreboard()
        for path in given.documents or documents(Path()):
            text = path.read_text(encoding="utf-8")
            renewed = with_tables(text, evaluations)
            if renewed != text:
                path.write_text(renewed, encoding="utf-8")
                print(f"{path}: tables renewed")
    except InputError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
