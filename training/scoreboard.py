"""Evaluate the released predictors on every dataset and publish the scoreboard.

`python -m forerun.training.scoreboard` evaluates the datasets that were not yet evaluated at this
commit, stores each result in `training/scoreboard.json` as soon as it is ready, and rewrites
`docs/results/scoreboard.md` and the table in `README.md`. `page` only rewrites the two documents.
`diff` prints the slices whose error changed by more than the noise since a commit. A dataset that
is not evaluated again keeps its stored scores, with their date and commit.

The README's table shows the most and the least accurate whole answers.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.data.bundle import find
from forerun.data.errors import InputError, MissingData
from forerun.data.markdown import markdown
from forerun.training.engines.jobs import LOCAL, Engine, Progress, engine_named
from forerun.training.evaluation.evaluate import evaluation_of, run_protocols
from forerun.training.evaluation.refit import Refits
from forerun.training.evaluation.stored import (
    evaluations_text,
    read_evaluations,
    released_artifact,
    scoreboard,
    scoreboard_file,
)
from forerun.training.protocols import DATASET_PROTOCOLS, protocols_of_dataset
from forerun.training.release.promotion import Difference, in_slices
from forerun.training.tracking import runs as tracking

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


PAGE: Final = Path("docs/results/scoreboard.md")
README: Final = Path("README.md")
MOST_LINES: Final = 40
"""A table with more tasks than this pools those of the same protocol and part."""
LEVEL: Final = 5e-3
"""Two errors whose relative difference is smaller than this count as equal."""
CHECKS: Final = ("public_cases", "laws")
"""Names of the stored check results that the page shows above the datasets."""
LONG_MINUTES: Final = 60.0
"""Datasets that take more CPU minutes than this are evaluated only if named, or on a cluster."""


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
    """Evaluate datasets and store each result; skip those already evaluated at this commit.

    Args:
        names: datasets; if empty, all except those that take more than `LONG_MINUTES`.
        file: the stored evaluations, rewritten after each dataset.
        seeds: number of fits.
        progress: called with a line of text.
        engine: runs the fits.

    Returns:
        Dataset -> why it was skipped.

    Raises:
        InputError: a name is not a dataset with protocols.
    """
    unknown = sorted(set(names) - set(names_of_tables()))
    if unknown:
        raise InputError(f"No table {unknown[0]!r}; there are {', '.join(names_of_tables())}.")
    commit, refits = tracking.git_commit(), Refits(released_artifact())
    skipped: dict[str, str] = {}
    for name in names or names_of_tables():
        tables = {table["dataset"]: table for table in read_evaluations(file)}
        before = tables.get(name, {})
        minutes = before.get("cpu_minutes") or 0.0
        if commit and before.get("commit") == commit and not commit.endswith("+changes"):
            skipped[name] = "evaluated at this commit"
        elif minutes > LONG_MINUTES and not names and engine is LOCAL:
            skipped[name] = f"takes {minutes:.0f} CPU minutes: name it, or use --engine ray"
        else:
            try:
                tables[name] = _evaluated(name, seeds, refits, progress, engine)
            except MissingData as error:
                skipped[name] = str(error)
        _write(file, [tables[name] for name in sorted(tables)])
        progress(f"{name}: {skipped.get(name, 'stored')}")
    return skipped


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
    """The scoreboard as a Markdown page, the dataset with the largest task error first.

    Args:
        tables: the evaluated datasets.
        cases: results of the public cases, as `python -m tests.public_cases --json` stores them.
        laws: results of the metamorphic laws, as `python -m tests.metamorphic --json` stores them.
    """
    known = {str(table["dataset"]): table for table in tables}
    names = sorted({*known, *names_of_tables()})
    return markdown(
        "forerun.training",
        "scoreboard.md",
        summary={name: _in_short(known[name]) if name in known else () for name in names},
        least_rows=FEWEST_ROWS,
        cases=cases,
        laws=laws,
        tables=[
            (table, [_line(*key, rows) for key, rows in _pooled(table["tasks"]).items()])
            for table in sorted(tables, key=_worst, reverse=True)
        ],
        not_scored=not_scored,
    )


def _in_short(table: Mapping[str, Any]) -> tuple[str, ...]:
    """Number of protocols and rows, median error, coverage and worst slice of a dataset."""
    tasks = table["tasks"]
    medians = [row["median_ape"] for row in tasks if row.get("median_ape") is not None]
    ranged = [row for row in tasks if row["n"] and row["coverage_90"] is not None]
    held = sum(row["coverage_90"] * row["n"] for row in ranged)
    slices = [
        (error, " ".join((group["task"], *filter(None, facts))))
        for group in table["cells"]
        for *facts, count, error in group["cells"]
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


def _worst(table: Mapping[str, Any]) -> float:
    """The largest mean error of any task; infinite if a task has no answered row."""
    errors = [row["mape"] if row["n"] else np.inf for row in table["tasks"]]
    return max((error for error in errors if error is not None), default=0.0)


def _pooled(tasks: Evaluations) -> Mapping[tuple[str, str], Evaluations]:
    """Tasks by name and metric, worst first; long tables merge the subparts of a part."""
    names = {row["task"] for row in tasks}
    long = len({(row["task"], row["metric"]) for row in tasks}) > MOST_LINES
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in sorted(tasks, key=lambda row: -(row.get("mape") or 0.0)):
        part = "/".join(row["task"].split("/")[:2]) if long else row["task"]
        if part == row["task"] or part not in names:
            found.setdefault((part, row["metric"]), []).append(row)
    return found


def not_scored(table: Mapping[str, Any]) -> list[str]:
    """Protocols of a dataset that hold rows out but have no stored score."""
    scored = {row["task"].partition("/")[0] for row in table["tasks"]}
    held_out_by = (cls.held_out_by for cls in DATASET_PROTOCOLS if cls.dataset == table["dataset"])
    return sorted({name for names in held_out_by for name in names} - scored)


def _line(task: str, metric: str, rows: Evaluations) -> tuple[str, ...]:
    """The cells of one line of the page; means are weighted by the number of rows."""
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
    """Whether a baseline or a published system has a smaller error in this task."""
    known = [value for value in row["baselines"].values() if value is not None]
    return bool(known) and min(known) < row["mape"] * (1.0 - LEVEL)


def moved(before: Evaluations, after: Evaluations) -> Iterator[Difference]:
    """Slices that changed beyond the noise between two scoreboards; missing datasets first."""
    names = {table["dataset"] for table in after}
    for table in before:
        if table["dataset"] not in names:
            yield Difference(table["dataset"], "scored", 1.0, 0.0, lost=True)
    yield from in_slices(before, after)


def _at(commit: str) -> Evaluations:
    """The evaluations stored at a commit; empty if there were none."""
    found: Evaluations = json.loads(tracking.scoreboard_at(commit) or "[]")
    return found


def checks() -> Iterator[dict[str, Any] | None]:
    """The stored results of the public cases and of the laws; None for one that is missing."""
    for name in CHECKS:
        file = scoreboard_file().with_name(f"{name}.json")
        yield json.loads(file.read_text("utf-8")) if file.is_file() else None


def main(words: Sequence[str] | None = None) -> int:
    """Update the scoreboard, or print what changed."""
    parser = argparse.ArgumentParser(prog="scoreboard", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", nargs="?", choices=("renew", "page", "diff"), default="renew")
    parser.add_argument("--tables", default="", help="names, separated by commas; all when empty")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--engine", default="local", choices=("local", "ray"))
    parser.add_argument("--base", default="HEAD", help="commit that `diff` compares with")
    given = parser.parse_args(words)
    if given.what == "diff":
        changes = list(moved(_at(given.base), scoreboard()))
        for change in changes:
            print(f"{'WORSE' if change.lost else 'better'}  {change.text()}")
        print(f"{sum(change.lost for change in changes)} slices are worse")
        return int(any(change.lost for change in changes))
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
