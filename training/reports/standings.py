"""Tables of where forerun is better than every baseline and published system, and where it is not.

All are made from stored evaluations: `standings` counts tasks by dataset, `losses` lists each task
in which something else has the smallest error, and `headlines` shows the best and the worst whole
answers of the scoreboard.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Evaluations = Sequence[Mapping[str, Any]]

OUTCOMES = ("ahead", "level", "behind")
LEVEL = 5e-3
"""Relative difference of two errors below which neither is ahead."""
SHOWN = 5
"""Tasks of each kind in the table `headlines`."""
FEWEST_ROWS = 20
"""Fewest rows of a task in the table `headlines`."""
_UNITS = {"mape": "%"}
_NAMES = {"published_neusight": "NeuSight", "published_faketensor": "FakeTensor"}


@dataclass(frozen=True)
class Comparison:
    """The error of forerun in one task, next to the smallest error of all others.

    Attributes:
        dataset: name of the dataset.
        task: name of the task, with its device where it has one, and the metric.
        n: number of rows.
        score: name of the score, of which less is better: `mape` in percent, `mae`, `rmse`.
        ours: error of forerun.
        rival: name of the best baseline or published system.
        theirs: its error on the same rows.
        coverage: coverage of the 90 % prediction intervals, percent; None without intervals.
    """

    dataset: str
    task: str
    n: int
    score: str
    ours: float
    rival: str
    theirs: float
    coverage: float | None

    @property
    def outcome(self) -> str:
        """`ahead` or `behind` the rival, or `level` where the errors hardly differ."""
        if abs(self.theirs - self.ours) < LEVEL * max(self.theirs, self.ours):
            return "level"
        return "ahead" if self.ours < self.theirs else "behind"


def comparisons(evaluations: Evaluations) -> Iterator[Comparison]:
    """Every stored task that was scored for forerun and for at least one other."""
    for evaluation in evaluations:
        for row in evaluation["tasks"]:
            score = row.get("score", "mape")
            others = row["baselines"] if score == "mape" else _others(row, score)
            known = {name: value for name, value in others.items() if value is not None}
            if known and row.get(score) is not None:
                rival = min(known, key=lambda name: known[name])
                yield Comparison(
                    evaluation["dataset"],
                    " ".join(filter(None, (row["task"], row["device"], row["metric"]))),
                    row["n"],
                    score,
                    row[score],
                    rival,
                    known[rival],
                    row.get("coverage_90"),
                )


def standings(evaluations: Evaluations) -> str:
    """Markdown table: for each dataset, how forerun stands against the best of all others."""
    counts: dict[str, Counter[str]] = {}
    for one in comparisons(evaluations):
        counts.setdefault(one.dataset, Counter())[one.outcome] += 1
    lines = ["| dataset | tasks | forerun is ahead | level | behind |"]
    lines.append("| --- | ---: | ---: | ---: | ---: |")
    lines += [_counted(f"`{name}`", count) for name, count in sorted(counts.items())]
    lines.append(_counted("all", sum(counts.values(), Counter())))
    return "\n".join(lines)


def losses(evaluations: Evaluations) -> str:
    """Markdown table: every task in which a baseline or a published system is better."""
    lines = ["| dataset | task | n | forerun | better | its error |"]
    lines.append("| --- | --- | ---: | ---: | --- | ---: |")
    lines += [
        f"| {one.dataset} | {one.task} | {one.n:,} | {_error(one.ours, one.score)} "
        f"| {_named(one.rival)} | **{_error(one.theirs, one.score)}** |"
        for one in comparisons(evaluations)
        if one.outcome == "behind"
    ]
    return "\n".join(lines)


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
    ranked = sorted((own[0] for own in by_error), key=lambda one: one[:2])
    worst_first = sorted((own[-1] for own in by_error), key=lambda one: one[:2], reverse=True)
    count = min(SHOWN, len(ranked))
    if not count:
        return "No whole answers are scored so far: `make scoreboard`."
    lines = ["| best | rows | error | held | worst | rows | error | held |"]
    lines.append("| --- | ---: | ---: | ---: | --- | ---: | ---: | ---: |")
    for best, worst in zip(ranked[:count], worst_first, strict=False):
        lines.append("| " + " | ".join((*_headline(*best), *_headline(*worst))) + " |")
    return "\n".join(lines)


def _in_words(row: Mapping[str, Any]) -> str:
    """A task as words: what was predicted, where, and what was held out."""
    protocol, _, what = row["task"].replace("_", " ").partition("/")
    metric = row["metric"].rpartition("_")[0].replace("_", " ") or row["metric"]
    named = what if metric in what else " ".join(filter(None, (what, metric)))
    where = f" on {row['device']}" if row["device"] else ""
    return f"{named}{where} ({protocol})"


def _headline(error: float, name: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    held = row.get("coverage_90")
    shown = "" if held is None else f"{held:.1f} %"
    return name, f"{row['n']:,}", _error(error, "mape"), shown


def floors(row: Mapping[str, Any]) -> str:
    """The best baseline or published system of a task with its error, bold where it is ahead."""
    known = {name: value for name, value in row["baselines"].items() if value is not None}
    if not known:
        return ""
    rival = min(known, key=lambda name: known[name])
    error = _error(known[rival], "mape")
    ahead = row.get("mape") is None or known[rival] < row["mape"]
    return f"{f'**{error}**' if ahead else error} ({_named(rival)})"


def _named(rival: str) -> str:
    return _NAMES.get(rival, rival.replace("_", " "))


def _others(row: Mapping[str, Any], score: str) -> Mapping[str, float | None]:
    """Errors of the others on the score of a task that is not ranked by percentage errors."""
    stored: Mapping[str, float | None] = row.get(f"baselines_{score}") or {
        name.removeprefix(f"{score}_"): value
        for name, value in row.items()
        if name.startswith(f"{score}_") and name.removeprefix(f"{score}_") in row["baselines"]
    }
    return stored


def _counted(name: str, count: Counter[str]) -> str:
    return f"| {name} | {count.total()} | " + " | ".join(str(count[o]) for o in OUTCOMES) + " |"


def _error(value: float, score: str) -> str:
    if unit := _UNITS.get(score):
        return f"{value:,.1f} {unit}"
    return f"{value:.3f} ({score})"
