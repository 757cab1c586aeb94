"""Tables of where forerun is better than every baseline and published system, and where it is not.

Both are made from stored evaluations: `standings` counts tasks by dataset, `losses` lists each task
in which something else has the smallest error.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Evaluations = Sequence[Mapping[str, Any]]

_UNITS = {"mape": "%"}


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
    """

    dataset: str
    task: str
    n: int
    score: str
    ours: float
    rival: str
    theirs: float

    @property
    def lost(self) -> bool:
        """Whether the rival has the smaller error."""
        return self.theirs < self.ours


def comparisons(evaluations: Evaluations) -> Iterator[Comparison]:
    """Every stored task that was scored for forerun and for at least one other."""
    for evaluation in evaluations:
        for row in evaluation["tasks"]:
            score = row.get("score", "mape")
            others = row["baselines"] if score == "mape" else _others(row, score)
            known = {name: value for name, value in others.items() if value is not None}
            if known and row.get(score) is not None:
                rival = min(known, key=lambda name: known[name])
                task = " ".join(filter(None, (row["task"], row["device"], row["metric"])))
                yield Comparison(
                    evaluation["dataset"], task, row["n"], score, row[score], rival, known[rival]
                )


def standings(evaluations: Evaluations) -> str:
    """Markdown table: for each dataset, the tasks won and lost against the best of all others."""
    counts: dict[str, list[int]] = {}
    for one in comparisons(evaluations):
        count = counts.setdefault(one.dataset, [0, 0])
        count[one.lost] += 1
    lines = ["| dataset | tasks | forerun has the smallest error | something else has |"]
    lines.append("| --- | ---: | ---: | ---: |")
    lines += [_counted(f"`{name}`", *count) for name, count in sorted(counts.items())]
    lines.append(_counted("all", *(sum(column) for column in zip(*counts.values(), strict=True))))
    return "\n".join(lines)


def losses(evaluations: Evaluations) -> str:
    """Markdown table: every task in which a baseline or a published system is better."""
    lines = ["| dataset | task | n | forerun | better | its error |"]
    lines.append("| --- | --- | ---: | ---: | --- | ---: |")
    lines += [
        f"| {one.dataset} | {one.task} | {one.n:,} | {_error(one.ours, one.score)} "
        f"| {one.rival.replace('_', ' ')} | **{_error(one.theirs, one.score)}** |"
        for one in comparisons(evaluations)
        if one.lost
    ]
    return "\n".join(lines)


def _others(row: Mapping[str, Any], score: str) -> Mapping[str, float | None]:
    """Errors of the others on the score of a task that is not ranked by percentage errors."""
    stored: Mapping[str, float | None] = row.get(f"baselines_{score}") or {
        name.removeprefix(f"{score}_"): value
        for name, value in row.items()
        if name.startswith(f"{score}_") and name.removeprefix(f"{score}_") in row["baselines"]
    }
    return stored


def _counted(name: str, won: int = 0, lost: int = 0) -> str:
    return f"| {name} | {won + lost} | {won} | {lost} |"


def _error(value: float, score: str) -> str:
    if unit := _UNITS.get(score):
        return f"{value:,.1f} {unit}"
    return f"{value:.3f} ({score})"
