"""The scoreboard: how well whole answers do in every table of measurements, worst first.

`python -m forerun.training.scoreboard` evaluates the tables that the code has changed for, one
after another, stores each in `training/scoreboard.json` as soon as it is done, and writes
`docs/results/scoreboard.md` and the table in `README.md`, as `page` does alone. `diff` prints
what moved beyond the noise since a commit. A table that was not run again keeps its rows, with
their date and commit.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.data.bundle import find
from forerun.data.errors import InputError, MissingData
from forerun.training.engines.jobs import LOCAL, Engine, Progress, engine_named
from forerun.training.evaluation.evaluate import evaluation_of, run_protocols
from forerun.training.evaluation.refit import Refits
from forerun.training.evaluation.stored import (
    Evaluations,
    evaluations_text,
    read_evaluations,
    released_artifact,
    scoreboard,
    scoreboard_file,
)
from forerun.training.protocols import DATASET_PROTOCOLS, protocols_of_dataset
from forerun.training.release.promotion import Difference, in_slices
from forerun.training.reports.standings import FEWEST_ROWS, with_headlines
from forerun.training.tracking import runs as tracking

PAGE: Final = Path("docs/results/scoreboard.md")
README: Final = Path("README.md")
MOST_LINES: Final = 40
"""Tasks from which on a table of the page pools those of one protocol and part."""
LEVEL: Final = 5e-3
"""Relative difference of two errors below which neither is ahead."""
CHECKS: Final = ("public_cases", "laws")
"""Names of the stored tallies that stand next to the tables."""
LONG_MINUTES: Final = 60.0
"""CPU minutes from which on a table is evaluated only where it is named, or on a cluster."""


def names_of_tables() -> tuple[str, ...]:
    """The datasets that have protocols, sorted."""
    return tuple(sorted(cls.dataset for cls in DATASET_PROTOCOLS))


def renew(
    names: Sequence[str],
    file: Path,
    *,
    seeds: int = 1,
    progress: Progress = lambda line: None,
    engine: Engine = LOCAL,
) -> dict[str, str]:
    """Evaluate tables and store each; those of this commit are finished.

    Args:
        names: tables; all but long ones when empty.
        file: the stored tables, which are written after each.
        seeds: number of fits.
        progress: called with a line of text.
        engine: does the fits.

    Returns:
        Table -> why it was not evaluated now.

    Raises:
        InputError: there is no table of a name.
    """
    unknown = sorted(set(names) - set(names_of_tables()))
    if unknown:
        raise InputError(f"No table {unknown[0]!r}; there are {', '.join(names_of_tables())}.")
    commit, refits = tracking.git_commit(), Refits(released_artifact())
    left: dict[str, str] = {}
    for name in names or names_of_tables():
        tables = {one["dataset"]: one for one in read_evaluations(file)}
        before = tables.get(name, {})
        minutes = before.get("cpu_minutes") or 0.0
        if commit and before.get("commit") == commit and not commit.endswith("+changes"):
            left[name] = "evaluated at this commit"
        elif minutes > LONG_MINUTES and not names and engine is LOCAL:
            left[name] = f"takes {minutes:.0f} CPU minutes: name it, or use --engine ray"
        else:
            try:
                tables[name] = _evaluated(name, seeds, refits, progress, engine)
            except MissingData as error:
                left[name] = str(error)
        _write(file, [tables[name] for name in sorted(tables)])
        progress(f"{name}: {left.get(name, 'stored')}")
    return left


def _evaluated(
    name: str, seeds: int, refits: Refits, progress: Progress, engine: Engine
) -> dict[str, Any]:
    start, bundle = time.process_time(), find(name)
    predictions = list(
        run_protocols(
            *(protocols_of_dataset(name), bundle),
            seeds=seeds,
            progress=lambda line: progress(f"{name} {line}"),
            engine=engine,
            refits=refits,
        )
    )
    minutes = round((time.process_time() - start) / 60.0, 1) if engine is LOCAL else None
    return {**evaluation_of(bundle, predictions, seeds), "cpu_minutes": minutes}


def _write(file: Path, tables: Evaluations) -> None:
    partial = file.with_suffix(".part")
    partial.write_text(evaluations_text(tables), encoding="utf-8")
    partial.replace(file)


def page(
    tables: Sequence[Mapping[str, Any]],
    cases: Mapping[str, Any] | None = None,
    laws: Mapping[str, Any] | None = None,
) -> str:
    """The scoreboard as a page: tables whose worst task is worst come first.

    Args:
        tables: the evaluated tables.
        cases: tally of the public cases, as `python -m tests.public_cases --json` stores it.
        laws: outcomes of the metamorphic laws, as `python -m tests.metamorphic --json` does.
    """
    parts = [
        "# Scoreboard",
        "How well whole answers do on rows that nothing was trained on: the release is fitted "
        "again without what a protocol holds out, and its answers are scored. A line pools the "
        "devices of a task, and in long tables its parts: `error` is the mean absolute percentage "
        "error over all rows, `median` the median of the tasks' median errors, `coverage` the "
        "share of measured values inside the 90 % intervals (all in percent), `best of others` the "
        "smallest mean error of a baseline or a published system (bold where it is smaller), and "
        "`behind` the number of tasks in which one is better. Tables with the largest error come "
        "first.",
        "Every task, with grades and widths of intervals, is in `training/scoreboard.json`, in "
        "`forerun leaderboard` and on the page `/leaderboard` of the service. `make scoreboard` "
        "evaluates; `python -m forerun.training.scoreboard page` writes this page.",
        _summary(tables),
        *([_public_cases(cases)] if cases else []),
        *([_laws(laws)] if laws else []),
        *(_table(table) for table in sorted(tables, key=_worst, reverse=True)),
    ]
    return "\n\n".join(parts) + "\n"


def _summary(tables: Sequence[Mapping[str, Any]]) -> str:
    """A line for each dataset that has protocols, also for those that are not scored."""
    known = {str(table["dataset"]): table for table in tables}
    head = ("dataset", "protocols", "rows", "median error", "coverage", "worst slice")
    lines: list[Sequence[str]] = [head, ("---", *("---:",) * 4, "---")]
    for name in sorted({*known, *names_of_tables()}):
        nothing = ("not scored", *("",) * 4)
        lines.append((name, *(_in_short(known[name]) if name in known else nothing)))
    return (
        "## Datasets\n\nA row counts in each task that scores it. `median error` is the median of "
        "the tasks' median errors, `coverage` the mean over rows, and a slice is what the rows of "
        "a task on one device and of one group have in common, "
        f"with {FEWEST_ROWS} rows or more.\n\n"
        f"{_rows(lines)}"
    )


def _in_short(table: Mapping[str, Any]) -> tuple[str, ...]:
    """Protocols, rows, median error, coverage and worst slice of a table."""
    tasks = table["tasks"]
    medians = [row["median_ape"] for row in tasks if row.get("median_ape") is not None]
    ranged = [row for row in tasks if row["n"] and row["coverage_90"] is not None]
    held = sum(row["coverage_90"] * row["n"] for row in ranged)
    slices = [
        (error, " ".join((own["task"], *filter(None, facts))))
        for own in table["cells"]
        for *facts, count, error in own["cells"]
        if count >= FEWEST_ROWS
    ]
    worst = max(slices, default=None)
    return (
        str(len({row["task"].partition("/")[0] for row in tasks})),
        f"{sum(row['n'] for row in tasks):,}",
        f"{np.median(medians):,.1f} %" if medians else "",
        f"{held / sum(row['n'] for row in ranged):.0f} %" if ranged else "",
        f"{worst[0]:,.1f} %: {worst[1]}".replace("|", "\\|") if worst else "",
    )


def _public_cases(tally: Mapping[str, Any]) -> str:
    """Published values of others, by group and by grade."""
    head = ("cases", "pairs", "answered", "coverage", "median answer / published", "median error")
    lines: list[Sequence[str]] = [(*head, "ratio"), ("---", *("---:",) * 6)]
    of_grades = {f"grade {grade}": own for grade, own in tally["by_grade"].items()}
    for name, own in {**tally["by_group"], **of_grades, "all": tally["all"]}.items():
        counts = (str(own["n"]), str(own["answered"]), f"{own['inside_share']:.0f} %")
        errors = (f"{own['median_ratio']:.2f}", f"{own['median_ape']:.1f} %")
        lines.append((name, *counts, *errors, f"{own['median_interval_ratio']:.2f}"))
    outside = ", ".join(tally["outside_with_grade_a"]) or "none"
    return (
        "## Published values of others\n\nAsked as a user would ask "
        "(`python -m tests.public_cases`). Outside the interval of an answer with grade A: "
        f"{outside}.\n\n{_rows(lines)}"
    )


def _laws(outcomes: Mapping[str, Any]) -> str:
    """The laws that some pair of answers breaks, most often broken first."""
    every = outcomes["laws"]
    broken = sorted((own for own in every if own["violations"]), key=lambda own: -own["share"])
    head, ruled = ("law", "pairs", "broken", "worst"), ("---", "---:", "---:", "---")
    lines: list[Sequence[str]] = [head, ruled]
    for own in broken:
        share = f"{own['violations']:,} ({100 * own['share']:.2f} %)"
        worst = f"{100 * own['worst']:.3g} %: {own['question']}"
        lines.append((own["law"].replace("_", " "), f"{own['pairs']:,}", share, worst))
    return (
        "## Laws of any answer\n\nRelations between answers that hold whatever the truth is "
        f"(`python -m tests.metamorphic`): {len(every) - len(broken)} of {len(every)} hold in all "
        f"pairs.\n\n{_rows(lines)}"
    )


def _rows(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"|{'|'.join(line)}|" for line in lines)


def _worst(table: Mapping[str, Any]) -> float:
    """The largest mean error of any task; infinite where no row of one is answered."""
    errors = [row["mape"] if row["n"] else np.inf for row in table["tasks"]]
    return max((error for error in errors if error is not None), default=0.0)


def _table(table: Mapping[str, Any]) -> str:
    minutes = table.get("cpu_minutes")
    took = "CPU time not measured" if minutes is None else f"{minutes:g} CPU minutes"
    about = (
        f"{table['date']}, commit `{str(table['commit'])[:12]}`, {table['seeds']} seed"
        f"{'s' * (table['seeds'] > 1)}, {took}"
    )
    head = ("task", "metric", "tasks", "rows", "error", "median", "coverage", "best of others")
    lines: list[Sequence[str]] = [(*head, "behind"), ("---", "---", *("---:",) * 5, "---", "---:")]
    lines += [_line(*key, rows) for key, rows in _pooled(table["tasks"]).items()]
    left = ", ".join(f"`{name}`" for name in not_scored(table))
    about += f".\n\nNot scored so far: {left}." if left else ""
    return f"## {table['dataset']}\n\n{about}\n\n{_rows(lines)}"


def _pooled(tasks: Evaluations) -> Mapping[tuple[str, str], Evaluations]:
    """Tasks by name and metric, worst first; parts of a part are left out of long tables."""
    names = {row["task"] for row in tasks}
    long = len({(row["task"], row["metric"]) for row in tasks}) > MOST_LINES
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in sorted(tasks, key=lambda row: -(row.get("mape") or 0.0)):
        part = "/".join(row["task"].split("/")[:2]) if long else row["task"]
        if part == row["task"] or part not in names:
            found.setdefault((part, row["metric"]), []).append(row)
    return found


def not_scored(table: Mapping[str, Any]) -> list[str]:
    """Protocols that hold something out of a table, and that no stored task is of."""
    scored = {row["task"].partition("/")[0] for row in table["tasks"]}
    own = (cls.held_out_by for cls in DATASET_PROTOCOLS if cls.dataset == table["dataset"])
    return sorted({name for names in own for name in names} - scored)


def _line(task: str, metric: str, rows: Evaluations) -> tuple[str, ...]:
    """What a line shows of its tasks; means are weighted by rows."""
    scored = [row for row in rows if row["n"] and row.get("mape") is not None]
    count = sum(row["n"] for row in scored)
    if not scored:
        return (task, metric, str(len(rows)), "no answer", *("",) * 5)

    def mean(values: Sequence[float | None]) -> float | None:
        known = [float(value) for value in values if value is not None]
        weights = [row["n"] for row in scored]
        return float(np.average(known, weights=weights)) if len(known) == len(scored) else None

    def shown(value: float | None, suffix: str = "") -> str:
        return "" if value is None else f"{value:,.3g}{suffix}"

    error = mean([row["mape"] for row in scored])
    medians = [row["median_ape"] for row in scored if row.get("median_ape") is not None]
    names = dict.fromkeys(name for row in scored for name in row["baselines"])
    means = ((mean([row["baselines"].get(name) for row in scored]), name) for name in names)
    best, rival = min(
        ((value, name) for value, name in means if value is not None), default=(None, "")
    )
    ahead = best is not None and error is not None and best < error
    return (
        task.replace("|", "\\|"),
        metric,
        str(len(rows)),
        f"{count:,}",
        shown(error),
        shown(float(np.median(medians)) if medians else None),
        shown(mean([row.get("coverage_90") for row in scored])),
        f"{'**' * ahead}{shown(best)}{'**' * ahead} {rival.replace('_', ' ')}".strip(),
        str(sum(_is_behind(row) for row in scored)),
    )


def _is_behind(row: Mapping[str, Any]) -> bool:
    """Whether a baseline or a published system has a smaller error in a task."""
    known = [value for value in row["baselines"].values() if value is not None]
    return bool(known) and min(known) < row["mape"] * (1.0 - LEVEL)


def moved(before: Evaluations, after: Evaluations) -> Iterator[Difference]:
    """What changed beyond the noise between two scoreboards, worst first; lost tables before."""
    names = {one["dataset"] for one in after}
    for one in before:
        if one["dataset"] not in names:
            yield Difference(one["dataset"], "scored", 1.0, 0.0, lost=True)
    yield from in_slices(before, after)


def _at(commit: str) -> Evaluations:
    """The tables as they were stored in a commit; empty where they were not."""
    found: Evaluations = json.loads(tracking.scoreboard_at(commit) or "[]")
    return found


def checks() -> Iterator[dict[str, Any] | None]:
    """The stored tallies of public cases and of laws, where there are any."""
    for name in CHECKS:
        file = scoreboard_file().with_name(f"{name}.json")
        yield json.loads(file.read_text("utf-8")) if file.is_file() else None


def main(words: Sequence[str] | None = None) -> int:
    """Renew the scoreboard, or print what moved."""
    parser = argparse.ArgumentParser(prog="scoreboard", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", nargs="?", choices=("renew", "page", "diff"), default="renew")
    parser.add_argument("--tables", default="", help="names, separated by commas; all when empty")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--engine", default="local", choices=("local", "ray"))
    parser.add_argument("--base", default="HEAD", help="commit that `diff` compares with")
    given = parser.parse_args(words)
    if given.what == "diff":
        changes = list(moved(_at(given.base), scoreboard()))
        for one in changes:
            print(f"{'WORSE' if one.lost else 'better'}  {one.text()}")
        print(f"{sum(one.lost for one in changes)} slices are worse")
        return int(any(one.lost for one in changes))
    if given.what == "renew":
        names = given.tables.replace(",", " ").split()
        with engine_named(given.engine) as engine:
            renew(
                names,
                scoreboard_file(),
                seeds=given.seeds,
                progress=partial(print, file=sys.stderr),
                engine=engine,
            )
    PAGE.write_text(page(scoreboard(), *checks()), encoding="utf-8")
    readme = with_headlines(README.read_text(encoding="utf-8"), scoreboard())
    README.write_text(readme, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
