"""What the page *Leaderboard* says of each dataset and of each task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from forerun.data.datasets import all_datasets
from forerun.training.leaderboard.entries import (
    Comparison,
    Leaderboard,
    Ranked,
    Section,
    Summary,
    comparisons,
    summary_of,
)

SCORES: Mapping[str, str] = {
    "mape": "mean absolute percentage error",
    "mae": "mean absolute error",
    "rmse": "root mean square error",
    "spearman": "Spearman's rank correlation",
}
"""Score -> its name in words; other scores are written as they are called."""


@dataclass(frozen=True)
class TaskTable:
    """One task at one number of shots.

    Attributes:
        section: dataset, task, device and metric.
        comparison: our best entry and the best of the others; None where ours was not evaluated.
        rows: all entries, best first, cited figures last.
    """

    section: Section
    comparison: Comparison | None
    rows: Sequence[Ranked]

    @property
    def protocol(self) -> str:
        """The protocol of the task."""
        return self.section.task.partition("/")[0]

    @property
    def shots(self) -> int:
        """Size of the support set; 0 for figures that are all cited."""
        return self.rows[0].entry.shots

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of the entries, in order of appearance."""
        return tuple(dict.fromkeys(row.entry.kind for row in self.rows))

    @property
    def outcome(self) -> str:
        """`ahead`, `behind` or `level`, or `alone` without another entry on the same rows."""
        return (self.comparison and self.comparison.outcome) or "alone"


@dataclass(frozen=True)
class DatasetTables:
    """All tasks of one dataset.

    Attributes:
        name: name of the bundle.
        title: one line about it; empty where it is not one of the known datasets.
        citation: its source; empty likewise.
        summary: how its tasks ended; None without an entry of ours.
        tasks: the tasks, in the order of the leaderboard.
    """

    name: str
    title: str
    citation: str
    summary: Summary | None
    tasks: Sequence[TaskTable]

    @property
    def entries(self) -> int:
        """Number of entries."""
        return sum(len(task.rows) for task in self.tasks)

    def values(self, field: str) -> tuple[str, ...]:
        """The different values of `protocol`, `metric`, `shots`, `kinds` or `outcome` of tasks."""
        found: dict[str, None] = {}
        for task in self.tasks:
            value = task.section.metric if field == "metric" else getattr(task, field)
            found |= dict.fromkeys(map(str, value) if isinstance(value, tuple) else [str(value)])
        return tuple(found)


def dataset_tables(board: Leaderboard) -> tuple[DatasetTables, ...]:
    """The tables of every dataset, in the order of the leaderboard."""
    known = {cls.name: cls for cls in all_datasets()}
    by_dataset: dict[str, list[TaskTable]] = {}
    for section in board.sections():
        by_dataset.setdefault(section.dataset, []).extend(_tables(section))
    summary = {
        name: summary_of([task.comparison for task in tasks if task.comparison])
        for name, tasks in by_dataset.items()
    }
    return tuple(
        DatasetTables(
            name,
            known[name].title if name in known else "",
            known[name].citation if name in known else "",
            summary[name],
            tasks,
        )
        for name, tasks in by_dataset.items()
    )


def not_evaluated(board: Leaderboard) -> tuple[str, ...]:
    """Datasets with protocols of which no result is stored."""
    from forerun.training.protocols import all_protocols  # with pandas, which nothing else needs

    return tuple(sorted({cls.dataset for cls in all_protocols()} - set(board.datasets())))


def score_name(score: str) -> str:
    """A score in words."""
    return SCORES.get(score, score.replace("_", " "))


def _tables(section: Section) -> list[TaskTable]:
    cited = [row for row in section.rows if row.entry.cited]
    by_shots: dict[int, list[Ranked]] = {}
    for row in section.rows:
        if not row.entry.cited:
            by_shots.setdefault(row.entry.shots, []).append(row)
    compared = {comparison.ours.shots: comparison for comparison in comparisons(section)}
    return [
        TaskTable(section, compared.get(shots), [*rows, *cited])
        for shots, rows in (by_shots or {0: []}).items()
    ]
