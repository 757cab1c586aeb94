"""The README's table of the most and the least accurate whole answers on the scoreboard."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

Evaluations = Sequence[Mapping[str, Any]]

SHOWN: Final = 5
"""Number of tasks of each kind."""
FEWEST_ROWS: Final = 20
"""Fewest rows of a task."""
UNIT: Final = re.compile(r"_(ms|w|j|mib|mhz)$")
SHOTS: Final = re.compile(r"/(\d+) (suggested|random)$")
"""Suffix of the name of a task with adaptation."""
MARKED: Final = re.compile(r"(<!-- figures: headlines -->\n).*?(<!-- end -->)", re.DOTALL)
"""The marked place of the table in a document."""


def with_headlines(text: str, tables: Evaluations) -> str:
    """A document whose marked table is replaced by a new one from the scoreboard."""
    return MARKED.sub(lambda found: f"{found[1]}{headlines(tables)}\n{found[2]}", text)


def headlines(tables: Evaluations) -> str:
    """Markdown table of whole answers: the tasks with the smallest errors next to the largest.

    Only the best and the worst task of each dataset are candidates.

    Args:
        tables: the datasets of the scoreboard.
    """
    ends: dict[str, list[tuple[float, str, Mapping[str, Any]]]] = {}
    for table in tables:
        for row in table["tasks"]:
            if row.get("mape") is not None and row["n"] >= FEWEST_ROWS:
                name = f"{table['dataset']}: {_in_words(row)}"
                ends.setdefault(table["dataset"], []).append((row["mape"], name, row))
    by_error = [sorted(tasks, key=lambda task: task[:2]) for tasks in ends.values()]
    best_first = sorted((tasks[0] for tasks in by_error), key=lambda task: task[:2])
    worst_first = sorted((tasks[-1] for tasks in by_error), key=lambda task: task[:2], reverse=True)
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
