"""The leaderboard: scores of predictors, baselines and published systems in every task.

An entry is the score of one predictor in one task. Entries are ranked and compared only if they
were evaluated on the same rows (one digest of the data, one number of shots and of rows). Figures
that are cited from a paper, or were evaluated on other data, are listed without a rank and marked.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from typing import Any, Literal, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from forerun.data.described import first_fault
from forerun.data.errors import BadTable
from forerun.training.published.figures import PUBLISHED, Published

Kind = Literal["ours", "baseline", "published"]
FORMAT = 1
HIGHER_IS_BETTER = frozenset(
    {"spearman", "kendall", "pearson", "r2", "within_10pct", "within_5pct", "bin_accuracy"}
)
"""Scores for which higher is better; for all others, lower is."""

FIELDS = ("mape", "median_ape", "spearman", "coverage_90", "mean_interval_ratio")
"""Scores that have their own field in an entry; all others are in `further`."""
_PERCENT = frozenset({"mape", "median_ape", "within_10pct", "within_5pct", "coverage_90"})
NOT_MEASURED = "–"


@with_config(ConfigDict(allow_inf_nan=False))
@dataclass(frozen=True)
class Entry:
    """The score of one predictor in one task.

    Attributes:
        dataset: name of the bundle.
        task: `protocol/part`, a set of rows that are scored together.
        metric: column of measurements that is predicted.
        predictor: name of the predictor.
        kind: `ours`, a simple `baseline`, or a `published` system by other authors.
        score: name of the score that ranks this task, such as `mape` or `spearman`.
        value: that score; None if not measured.
        standard_error: standard error of `value` over seeds; None for a single seed.
        device: the only device of the rows; None for several.
        protocol: protocol whose fold the predictor was fitted on; None for cited figures.
        shots: size of the support set of the device under test.
        seeds: number of fits (or draws of the support set) averaged; None for a cited figure.
        n: number of rows scored.
        mape: mean absolute percentage error, percent.
        median_ape: median absolute percentage error, percent.
        spearman: rank correlation, -1 to 1.
        coverage_90: coverage of the 90 % prediction intervals, percent.
        mean_interval_ratio: mean of high / low.
        further: other scores of the task by name.
        citation: publication of a cited figure or of its data.
        over: the rows that a cited figure is averaged over, in the words of its source.
        command: command that reproduces this entry; None for a cited figure.
        date: date of the evaluation, ISO 8601.
        commit: git commit of the code, or its version outside git.
        digest: hash of the bundle that it was evaluated on; None for a cited figure.
        environment: interpreter, platform and packages -> version; empty if not recorded.
    """

    dataset: str
    task: str
    metric: str
    predictor: str
    kind: Kind
    score: str
    value: float | None
    standard_error: float | None = None
    device: str | None = None
    protocol: str | None = None
    shots: int = 0
    seeds: int | None = None
    n: int | None = None
    mape: float | None = None
    median_ape: float | None = None
    spearman: float | None = None
    coverage_90: float | None = None
    mean_interval_ratio: float | None = None
    further: Mapping[str, float | None] = field(default_factory=dict)
    citation: str | None = None
    over: str | None = None
    command: str | None = None
    date: str | None = None
    commit: str | None = None
    digest: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[object, ...]:
        """Identity of the entry: a later entry with the same key replaces an earlier one."""
        place = (self.dataset, self.task, self.device, self.metric)
        return (*place, self.predictor, self.kind, self.shots, self.digest, self.over)

    @property
    def cited(self) -> bool:
        """True for a figure copied from a publication, not evaluated by this code."""
        return self.digest is None

    def to_json(self) -> dict[str, Any]:
        """Fields by name, ready for JSON; scores that were not measured are null."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Entry":
        """The entry that `to_json` wrote; unknown fields, from later versions, are ignored.

        Raises:
            BadTable: a field is missing, of the wrong type, or not finite.
        """
        known = {f.name for f in fields(cls)}
        try:
            return _checked().validate_python({k: v for k, v in content.items() if k in known})
        except ValidationError as error:
            raise BadTable(f"No entry of a leaderboard: {first_fault(error)}") from None


@cache
def _checked() -> TypeAdapter[Entry]:
    """Validator that builds entries from plain data."""
    return TypeAdapter(Entry)


@dataclass(frozen=True)
class Ranked:
    """An entry in its section.

    Attributes:
        entry: the entry.
        rank: 1 for the best of the entries evaluated on the same rows, with equal ranks for ties;
            None if the entry is not ranked.
        note: why it has no rank; empty if it has one.
    """

    entry: Entry
    rank: int | None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """The entry's fields with `rank` and `note`."""
        return {**self.entry.to_json(), "rank": self.rank, "note": self.note}


@dataclass(frozen=True)
class Section:
    """Entries of one task, on one device or on all, that are compared with each other.

    Attributes:
        dataset: name of the bundle.
        task: `protocol/part`.
        device: the only device of the rows, or None.
        metric: column of measurements that is predicted.
        score: name of the score that ranks.
        rows: entries by number of shots, best first; cited figures last.
    """

    dataset: str
    task: str
    device: str | None
    metric: str
    score: str
    rows: Sequence[Ranked]


@dataclass(frozen=True)
class Leaderboard:
    """A collection of entries: evaluated, shipped with the package, or cited.

    Attributes:
        entries: all entries, in order of insertion.
    """

    entries: tuple[Entry, ...] = ()

    def datasets(self) -> tuple[str, ...]:
        """Names in order of first appearance."""
        return tuple(dict.fromkeys(entry.dataset for entry in self.entries))

    def with_entries(self, new: Iterable[Entry]) -> "Leaderboard":
        """A leaderboard with additional entries; an entry replaces an earlier one with its key."""
        held = {entry.key: entry for entry in self.entries}
        held.update({entry.key: entry for entry in new})
        return Leaderboard(tuple(held.values()))

    def only(
        self,
        datasets: Collection[str] = (),
        protocols: Collection[str] = (),
        predictors: Collection[str] = (),
        shots: Collection[int] = (),
    ) -> "Leaderboard":
        """Entries of the given datasets, protocols, predictors and shots; empty means all.

        Baselines and published systems are kept regardless of `predictors`, and cited figures
        regardless of `shots`, so that our predictors are never listed without a comparison.
        """

        def wanted(entry: Entry) -> bool:
            ours = entry.kind == "ours"
            return (
                (not datasets or entry.dataset in datasets)
                and (not protocols or bool({entry.protocol, _protocol(entry)} & set(protocols)))
                and (not predictors or not ours or entry.predictor in predictors)
                and (not shots or entry.cited or entry.shots in shots)
            )

        return Leaderboard(tuple(filter(wanted, self.entries)))

    def sections(self) -> tuple[Section, ...]:
        """Sections in order of first appearance.

        A cited figure without a device joins the section of its task if that task has only one
        device; otherwise it has its own section.
        """
        groups: dict[tuple[str, str, str | None, str], list[Entry]] = {}
        for entry in self.entries:
            place = (entry.dataset, entry.task, entry.device, entry.metric)
            groups.setdefault(place, []).append(entry)
        for place in list(groups):
            dataset, task, device, metric = place
            with_device = [
                p for p in groups if (p[0], p[1], p[3]) == (dataset, task, metric) and p[2]
            ]
            if device is None and len(with_device) == 1 and all(e.cited for e in groups[place]):
                groups[with_device[0]] += groups.pop(place)
        ordered = sorted(groups, key=lambda place: self.datasets().index(place[0]))
        return tuple(_section(*place, groups[place]) for place in ordered)

    def to_json(self) -> dict[str, Any]:
        """`format`, and `entries` with their ranks, section by section, ready for JSON."""
        ranked = [row.to_json() for section in self.sections() for row in section.rows]
        return {"format": FORMAT, "entries": ranked}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The leaderboard that `to_json` wrote.

        Raises:
            BadTable: the content is not a leaderboard, or has another format version.
        """
        if not isinstance(content, Mapping) or content.get("format") != FORMAT:
            raise BadTable(f"No leaderboard of format {FORMAT}.")
        return cls(tuple(Entry.from_json(entry) for entry in content.get("entries", ())))


def cited(dataset: str) -> tuple[Entry, ...]:
    """Published results on a dataset, and our own baselines, as entries without a command."""
    return tuple(_cited(figure) for figure in PUBLISHED if figure.dataset == dataset)


def score_text(score: str, value: float | None) -> str:
    """A score as text: percent or a number; a dash if not measured."""
    if value is None:
        return NOT_MEASURED
    if score in _PERCENT:
        return f"{value:,.1f} %" if abs(value) < 1000 else f"{value:,.0f} %"
    return f"{value:.3f}" if score in HIGHER_IS_BETTER else f"{value:,.4g}"


def value_text(entry: Entry) -> str:
    """The ranking score as text, with its standard error if there are several seeds."""
    text = score_text(entry.score, entry.value)
    if entry.value is None or entry.standard_error is None:
        return text
    digits = 3 if entry.score in HIGHER_IS_BETTER - _PERCENT else 2
    return f"{text} ± {entry.standard_error:.{digits}f}"


def _cited(figure: Published) -> Entry:
    scores: dict[str, Any] = {figure.score: figure.value} if figure.score in FIELDS else {}
    return Entry(
        dataset=figure.dataset,
        task=figure.task,
        metric=figure.metric,
        predictor=figure.system,
        kind="baseline" if figure.own else "published",
        score=figure.score,
        value=figure.value,
        n=figure.n,
        citation=figure.citation,
        over=figure.over,
        **scores,
    )


def _protocol(entry: Entry) -> str:
    return entry.task.partition("/")[0]


def _section(
    dataset: str, task: str, device: str | None, metric: str, entries: Sequence[Entry]
) -> Section:
    evaluated = [entry for entry in entries if not entry.cited]
    newest = max(evaluated, key=lambda entry: entry.date or "", default=None)
    score = entries[0].score if newest is None else newest.score
    ranked: list[Ranked] = []
    for shots in sorted({entry.shots for entry in evaluated}):
        same_shots = sorted((e for e in evaluated if e.shots == shots), key=_best_first)
        notes = [_why_unranked(entry, newest, same_shots) for entry in same_shots]
        order = [_best_first(e) for e, note in zip(same_shots, notes, strict=True) if not note]
        for entry, note in zip(same_shots, notes, strict=True):
            rank = None if note else 1 + order.index(_best_first(entry))
            ranked.append(Ranked(entry, rank, note))
    for entry in sorted((e for e in entries if e.cited), key=_best_first):
        ranked.append(Ranked(entry, None, "cited, not evaluated here"))
    return Section(dataset, task, device, metric, score, tuple(ranked))


def _why_unranked(entry: Entry, newest: Entry | None, same_shots: Sequence[Entry]) -> str:
    if newest is None or entry.digest != newest.digest:
        return f"other data, {str(entry.digest)[:8]}"
    if entry.score != newest.score:
        return f"scored by {entry.score}"
    if entry.value is None:
        return "not measured"
    most = max(other.n or 0 for other in same_shots if other.digest == newest.digest)
    if entry.n is None:
        return f"answered an unknown number of {most:,} rows" if most else ""
    return f"answered {entry.n:,} of {most:,} rows" if entry.n < most else ""


def _best_first(entry: Entry) -> tuple[bool, float]:
    if entry.value is None:
        return True, 0.0
    return False, -entry.value if entry.score in HIGHER_IS_BETTER else entry.value


Outcome = Literal["ahead", "behind", "level"]
COMMON = "mape"
"""Score to compare by if only our predictor has the score that ranks the task."""

LEVEL_ERRORS, LEVEL_CORRELATIONS = 5e-3, 5e-4
"""Relative difference of errors, and difference of other scores, below which entries are level."""


@dataclass(frozen=True)
class Comparison:
    """Our best entry in one task at one number of shots, with the best of its competitors.

    Attributes:
        section: dataset, task, device and metric.
        score: name of the score that is compared: the section's score if another entry on the same
            rows has it, else `COMMON` if both have that.
        ours: our best entry with that score.
        baseline: the best baseline on the same rows; None if there is none.
        published: the best published system on the same rows; None if there is none.
        cited: the best cited figure of a published system, by the section's score; None if there
            is none.
    """

    section: Section
    score: str
    ours: Entry
    baseline: Entry | None
    published: Entry | None
    cited: Entry | None

    @property
    def rival(self) -> Entry | None:
        """The best competitor on the same rows; None if there is none."""
        others = (self.published, self.baseline)
        return _best([entry for entry in others if entry is not None], self.score)

    @property
    def outcome(self) -> Outcome | None:
        """Whether our entry is ahead of the rival; None without a rival."""
        return None if self.rival is None else outcome(self.ours, self.rival, self.score)


@dataclass(frozen=True)
class Summary:
    """One dataset in the table of all datasets.

    Attributes:
        headline: the comparison that represents the dataset, by the rule of `headline`.
        ahead, behind, level: number of comparisons in which our entry is better than, worse than
            and level with the best competitor on the same rows.
        alone: number of comparisons without a competitor on the same rows.
    """

    headline: Comparison
    ahead: int
    behind: int
    level: int
    alone: int


def summary_of(compared: Sequence[Comparison]) -> Summary | None:
    """The summary of one dataset's comparisons; None if there are none."""
    if not compared:
        return None
    outcomes = [comparison.outcome for comparison in compared]
    counts = map(outcomes.count, ("ahead", "behind", "level", None))
    return Summary(headline(compared), *counts)


def headline(compared: Sequence[Comparison]) -> Comparison:
    """The comparison that represents a dataset, chosen regardless of who is ahead.

    The first kind that exists: with a published system on the same rows, with a cited figure, with
    a baseline, any. Among these the comparison with the most rows; the first one in case of ties.
    """

    def kind(comparison: Comparison) -> int:
        there = (comparison.published, comparison.cited, comparison.baseline)
        return next((place for place, entry in enumerate(there) if entry is not None), 3)

    return min(compared, key=lambda comparison: (kind(comparison), -(comparison.ours.n or 0)))


def comparisons(section: Section) -> tuple[Comparison, ...]:
    """The comparisons of a section, one for each number of shots at which we were evaluated."""
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
    """How far our entry is ahead of or behind another, in words, such as `29 % less error`."""
    our_score, other_score = _both(ours, other, score)
    if outcome(ours, other, score) == "level":
        return "level"
    if score in HIGHER_IS_BETTER:
        return f"{our_score - other_score:+.3f}".replace("-", "−")
    ratio = our_score / other_score if other_score else float("inf")
    if ratio > 2:
        return f"{ratio:,.1f} times the error"
    return f"{abs(1 - ratio):.0%} {'less' if ratio < 1 else 'more'} error".replace("%", " %", 1)


def score_value(entry: Entry, score: str) -> float | None:
    """A score of an entry by name; None if not measured."""
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
    our_score, other_score = score_value(ours, score), score_value(other, score)
    if our_score is None or other_score is None:
        raise ValueError(f"both entries must have the score {score!r}")
    return our_score, other_score
