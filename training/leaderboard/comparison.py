"""Who is ahead in each task of the leaderboard, and one task that stands for each dataset.

Entries are compared where they were scored on the same rows: one digest, one number of shots and
the same number of rows. A figure cited from a publication is kept apart, since it was scored on the
rows of its source.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from forerun.training.leaderboard.entries import (
    HIGHER_IS_BETTER,
    Entry,
    Kind,
    Section,
)

Outcome = Literal["ahead", "behind", "level"]
COMMON = "mape"
"""Score of a comparison where a task is ranked by one that only our predictor has."""

LEVEL_ERRORS, LEVEL_CORRELATIONS = 5e-3, 5e-4
"""Relative difference of errors, and difference of other scores, below which entries are level."""


@dataclass(frozen=True)
class Comparison:
    """One task at one number of shots: our best entry, and the best of the others.

    Attributes:
        section: dataset, task, device and metric.
        score: name of the score that is compared: the section's where another entry on the same
            rows has it, else `COMMON` where both have it.
        ours: our best entry with that score.
        baseline: the best baseline on the same rows; None where there is none.
        published: the best published system on the same rows; None where there is none.
        cited: the best cited figure of a published system, by the section's score; None where
            there is none.
    """

    section: Section
    score: str
    ours: Entry
    baseline: Entry | None
    published: Entry | None
    cited: Entry | None

    @property
    def rival(self) -> Entry | None:
        """The best of the others on the same rows; None where there is none."""
        others = (self.published, self.baseline)
        return _best([entry for entry in others if entry is not None], self.score)

    @property
    def outcome(self) -> Outcome | None:
        """Whether ours is ahead of the rival; None without a rival."""
        return None if self.rival is None else outcome(self.ours, self.rival, self.score)


@dataclass(frozen=True)
class Summary:
    """One dataset in the table of all datasets.

    Attributes:
        headline: the comparison that stands for the dataset, by the rule of `headline`.
        ahead, behind, level: comparisons in which ours is better than, worse than and as good as
            the best of the others on the same rows.
        alone: comparisons without another entry on the same rows.
    """

    headline: Comparison
    ahead: int
    behind: int
    level: int
    alone: int


def summary_of(compared: Sequence[Comparison]) -> Summary | None:
    """The summary of one dataset's comparisons; None where there are none."""
    if not compared:
        return None
    outcomes = [comparison.outcome for comparison in compared]
    return Summary(
        headline(compared),
        ahead=outcomes.count("ahead"),
        behind=outcomes.count("behind"),
        level=outcomes.count("level"),
        alone=outcomes.count(None),
    )


def headline(compared: Sequence[Comparison]) -> Comparison:
    """The comparison that stands for a dataset, chosen without regard to who is ahead.

    The first kind that there is of: with a published system on the same rows, with a cited figure,
    with a baseline, any. Among these the one with the most rows, and of equals the first.
    """

    def kind(comparison: Comparison) -> int:
        there = (comparison.published, comparison.cited, comparison.baseline)
        return next((place for place, entry in enumerate(there) if entry is not None), 3)

    return min(compared, key=lambda comparison: (kind(comparison), -(comparison.ours.n or 0)))


def comparisons(section: Section) -> tuple[Comparison, ...]:
    """The comparisons of a section, one for each number of shots at which ours was evaluated."""
    evaluated = [row.entry for row in section.rows if not row.entry.cited]
    newest = max(evaluated, key=lambda entry: entry.date or "", default=None)
    if newest is None:
        return ()
    current = [entry for entry in evaluated if entry.digest == newest.digest]
    figures = [row.entry for row in section.rows if row.entry.cited]
    counts = sorted({entry.shots for entry in current if entry.kind == "ours"})
    found = (
        _comparison(section, [e for e in current if e.shots == shots], figures) for shots in counts
    )
    return tuple(comparison for comparison in found if comparison is not None)


def outcome(ours: Entry, other: Entry, score: str) -> Outcome:
    """Whether our entry is ahead of another by a score that both have."""
    one, two = _both(ours, other, score)
    if score in HIGHER_IS_BETTER:
        advantage, level = one - two, LEVEL_CORRELATIONS
    else:
        advantage, level = (two - one) / max(one, two, 1e-12), LEVEL_ERRORS
    if abs(advantage) < level:
        return "level"
    return "ahead" if advantage > 0 else "behind"


def gap_text(ours: Entry, other: Entry, score: str) -> str:
    """How far our entry is ahead of or behind another, in words: `29 % less error`."""
    one, two = _both(ours, other, score)
    if outcome(ours, other, score) == "level":
        return "level"
    if score in HIGHER_IS_BETTER:
        return f"{one - two:+.3f}".replace("-", "−")
    ratio = one / two if two else float("inf")
    if ratio > 2:
        return f"{ratio:,.1f} times the error"
    return f"{abs(1 - ratio):.0%} {'less' if ratio < 1 else 'more'} error".replace("%", " %", 1)


def score_value(entry: Entry, score: str) -> float | None:
    """A score of an entry by its name; None where it was not measured."""
    if entry.score == score:
        return entry.value
    return entry.mape if score == COMMON else entry.further.get(score)


def _comparison(
    section: Section, same_shots: Sequence[Entry], figures: Sequence[Entry]
) -> Comparison | None:
    most = max((entry.n or 0 for entry in same_shots), default=0)
    whole = [entry for entry in same_shots if (entry.n or 0) == most]
    score = section.score
    if not _with(whole, score, "baseline", "published"):
        score = COMMON if _with(whole, COMMON, "baseline", "published") else score
    ours = _best(_with(whole, score, "ours"), score)
    if ours is None:
        return None
    return Comparison(
        section,
        score,
        ours,
        baseline=_best(_with(whole, score, "baseline"), score),
        published=_best(_with(whole, score, "published"), score),
        cited=_best(_with(figures, section.score, "published"), section.score),
    )


def _with(entries: Iterable[Entry], score: str, *kinds: Kind) -> list[Entry]:
    return [e for e in entries if e.kind in kinds and score_value(e, score) is not None]


def _best(entries: Sequence[Entry], score: str) -> Entry | None:
    sign = -1.0 if score in HIGHER_IS_BETTER else 1.0
    return min(entries, key=lambda entry: sign * (score_value(entry, score) or 0.0), default=None)


def _both(ours: Entry, other: Entry, score: str) -> tuple[float, float]:
    one, two = score_value(ours, score), score_value(other, score)
    if one is None or two is None:
        raise ValueError(f"both entries must have the score {score!r}")
    return one, two
