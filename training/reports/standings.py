"""Tables of where forerun is better than every baseline and published system, and where it is not.

All are made from stored evaluations: `standings` counts tasks by dataset, `losses` lists each task
in which something else has the smallest error, and `headlines` shows a few tasks of both kinds.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forerun.data.errors import MissingData

Evaluations = Sequence[Mapping[str, Any]]

OUTCOMES = ("ahead", "level", "behind")
LEVEL = 5e-3
"""Relative difference of two errors below which neither is ahead."""
HEADLINES = (
    ("vision networks on a GPU that was left out", "timm_bench", "unseen_device/eager"),
    ("vision networks of families left out", "timm_bench", "unseen_family/eager"),
    ("memory of training, families left out", "gpumemnet", "unseen_family/training_peak"),
    ("transformers on three AMD GPUs", "neusight", "published/e2e_amd"),
    (
        "training in fp16, networks left out",
        "published_networks",
        "unseen_model/eager_training_fp16",
    ),
)
"""Heading, dataset and task of the table `headlines`: three wins and two losses."""
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


def headlines(evaluations: Evaluations) -> str:
    """Markdown table of the tasks of `HEADLINES`; the smaller error of a line is in bold.

    Raises:
        MissingData: no stored evaluation holds one of the tasks.
    """
    lines = ["| what was predicted | rows | forerun | best of all others | 90 % intervals hold |"]
    lines.append("| --- | ---: | ---: | ---: | ---: |")
    found = {(one.dataset, one.task.split(" ")[0]): one for one in comparisons(evaluations)}
    for heading, *place in HEADLINES:
        one = found.get((place[0], place[1]))
        if one is None:
            raise MissingData(f"No stored evaluation holds {' '.join(place)}.")
        errors = [_error(one.ours, one.score), _error(one.theirs, one.score)]
        best = int(one.theirs < one.ours)
        errors[best] = f"**{errors[best]}**"
        held = "" if one.coverage is None else f"{one.coverage:.1f} %"
        lines.append(
            f"| {heading} | {one.n:,} | {errors[0]} | {errors[1]} ({_named(one.rival)}) | {held} |"
        )
    return "\n".join(lines)


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
