"""The best and the worst whole answers of the scoreboard, as a table for the README."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

Evaluations = Sequence[Mapping[str, Any]]

SHOWN: Final = 5
"""Tasks of each kind."""
FEWEST_ROWS: Final = 20
"""Fewest rows of a task."""
UNIT: Final = re.compile(r"_(ms|w|j|mib|mhz)$")
SHOTS: Final = re.compile(r"/(\d+) (suggested|random)$")
"""End of the name of a task after adaptation."""
MARKED: Final = re.compile(r"(<!-- figures: headlines -->\n).*?(<!-- end -->)", re.DOTALL)
"""Where a document has the table."""


def with_headlines(text: str, tables: Evaluations) -> str:
    """A document whose marked table is made anew from the tables of the scoreboard."""
    return MARKED.sub(lambda found: f"{found[1]}{headlines(tables)}\n{found[2]}", text)


def headlines(tables: Evaluations) -> str:
    """Markdown table of whole answers: the tasks with the smallest errors next to the worst.

    Of each dataset, the best and the worst task are candidates.

    Args:
        tables: those of the scoreboard.
    """
    ends: dict[str, list[tuple[float, str, Mapping[str, Any]]]] = {}
    for table in tables:
        for row in table["tasks"]:
            if row.get("mape") is not None and row["n"] >= FEWEST_ROWS:
                name = f"{table['dataset']}: {_in_words(row)}"
                ends.setdefault(table["dataset"], []).append((row["mape"], name, row))
    by_error = [sorted(own, key=lambda one: one[:2]) for own in ends.values()]
    best_first = sorted((own[0] for own in by_error), key=lambda one: one[:2])
    worst_first = sorted((own[-1] for own in by_error), key=lambda one: one[:2], reverse=True)
    if not ends:
        return "No whole answers are scored so far: `make scoreboard`."
    lines = ["| best | rows | error | coverage | worst | rows | error | coverage |"]
    lines.append("| --- | ---: | ---: | ---: | --- | ---: | ---: | ---: |")
    for best, worst in zip(best_first[:SHOWN], worst_first[:SHOWN], strict=True):
        lines.append("| " + " | ".join((*_headline(*best), *_headline(*worst))) + " |")
    return "\n".join(lines)


def _in_words(row: Mapping[str, Any]) -> str:
    """A task as words: what was predicted, where, and what was held out."""
    protocol, _, what = row["task"].replace("_", " ").partition("/")
    metric = UNIT.sub("", row["metric"]).replace("_", " ")
    named = what if metric in what else " ".join(filter(None, (what, metric)))
    named = SHOTS.sub(r" after \1 \2 measurements", named.replace(" per s", " per second"))
    where = f" on {row['device']}" if row["device"] else ""
    return f"{named}{where} ({protocol})"


def _headline(error: float, name: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    held = row.get("coverage_90")
    shown = "" if held is None else f"{held:.1f} %"
    return name, f"{row['n']:,}", f"{error:,.1f} %", shown
