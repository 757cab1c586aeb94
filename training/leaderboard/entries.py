"""The leaderboard: who predicts what how well, with baselines and cited figures beside ours.

An entry is one predictor's score in one task. What is compared is one table of tasks: ranks are
given among entries that were judged on the same rows (same data, same number of shots) and to
nobody else, so that a figure cited from a paper or judged on other data stands beside them, marked.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Self

from forerun.data.errors import BadTable
from forerun.training.published.figures import PUBLISHED, Published

Kind = Literal["ours", "baseline", "published"]
FORMAT = 1
HIGHER_IS_BETTER = frozenset(
    {"spearman", "kendall", "pearson", "r2", "within_10pct", "within_5pct", "bin_accuracy"}
)
"""Scores of which more is better; of every other score, less is."""

_PERCENT = frozenset({"mape", "median_ape", "within_10pct", "within_5pct", "coverage_90"})
NOT_MEASURED = "–"


@dataclass(frozen=True)
class Entry:
    """One predictor's score in one task.

    Attributes:
        dataset: name of the bundle.
        task: `protocol/part`, the rows that are judged together.
        metric: column of measurements that is predicted.
        predictor: who predicts.
        kind: `ours`, a `baseline` that needs no skill, or `published` by others.
        score: field of a score that ranks this task, such as `mape` or `spearman`.
        value: of that field; None where it was not measured.
        standard_error: of `value` over seeds; None for one seed, which has none.
        device: the one device judged; None for several.
        protocol: exam that prepared for the task; None where no exam of ours did.
        shots: rows of the device under test that were given to adapt on.
        seeds: fits, or draws of shots, that were averaged; None for a cited figure.
        n: rows judged.
        mape: mean absolute percentage error, percent.
        median_ape: median absolute percentage error, percent.
        spearman: rank correlation, -1 to 1.
        coverage_90: share of measured values in their interval, percent; meant to be 90.
        mean_interval_ratio: mean of high over low.
        further: other scores of the task by name.
        citation: where a figure of others, or its data, stands.
        over: rows a cited figure is a mean of, in its source's words.
        command: prints this row again; None for a cited figure.
        date: when it was judged, ISO 8601.
        commit: of the code that judged it, or its version outside git.
        digest: hash of the bundle it was judged on; None for a cited figure.
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

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two entries the same row, of which the later one counts."""
        place = (self.dataset, self.task, self.device, self.metric)
        return (*place, self.predictor, self.kind, self.shots, self.digest, self.over)

    @property
    def cited(self) -> bool:
        """True for a figure copied from where it stands, not judged by this code."""
        return self.digest is None

    def to_json(self) -> dict[str, Any]:
        """Fields by name, ready for JSON; what was not measured is null."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The entry that `to_json` wrote; fields of later versions are left out.

        Raises:
            BadTable: a field is missing.
        """
        known = {f.name for f in fields(cls)}
        try:
            return cls(**{name: value for name, value in content.items() if name in known})
        except TypeError as error:
            raise BadTable(f"No entry of a leaderboard: {error}") from None


@dataclass(frozen=True)
class Ranked:
    """An entry in its section.

    Attributes:
        entry: the entry.
        rank: 1 for the best among those judged on the same rows, equal ones sharing theirs; None
            for all others.
        note: why it has no rank; empty where it has one.
    """

    entry: Entry
    rank: int | None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """The entry's fields with `rank` and `note`."""
        return {**self.entry.to_json(), "rank": self.rank, "note": self.note}


@dataclass(frozen=True)
class Section:
    """What is compared: one task, on one device or on all.

    Attributes:
        dataset: name of the bundle.
        task: `protocol/part`.
        device: the one device judged, or None.
        metric: column that is predicted.
        score: field that ranks.
        rows: by number of shots, best first; cited figures last.
    """

    dataset: str
    task: str
    device: str | None
    metric: str
    score: str
    rows: Sequence[Ranked]


@dataclass(frozen=True)
class Leaderboard:
    """Entries, whichever way they were had."""

    entries: tuple[Entry, ...] = ()

    def datasets(self) -> tuple[str, ...]:
        """Names in order of first appearance."""
        return tuple(dict.fromkeys(entry.dataset for entry in self.entries))

    def with_entries(self, new: Iterable[Entry]) -> "Leaderboard":
        """These and those; a new entry takes the place of the old one of the same row."""
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
        """Entries of these; all where nothing is named.

        Baselines and figures of others stay whichever predictors are named, and cited figures
        whichever shots: nothing of ours is shown alone.
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
        """What is compared with what, in order of first appearance.

        A cited figure of no device stands in the section of its task's device where there is one
        alone; a figure over several devices is compared with none of them.
        """
        groups: dict[tuple[str, str, str | None, str], list[Entry]] = {}
        for entry in self.entries:
            place = (entry.dataset, entry.task, entry.device, entry.metric)
            groups.setdefault(place, []).append(entry)
        for place in list(groups):
            dataset, task, device, metric = place
            apart = [p for p in groups if (p[0], p[1], p[3]) == (dataset, task, metric) and p[2]]
            if device is None and len(apart) == 1 and all(e.cited for e in groups[place]):
                groups[apart[0]] += groups.pop(place)
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
            BadTable: it is none, or of another version.
        """
        if not isinstance(content, Mapping) or content.get("format") != FORMAT:
            raise BadTable(f"No leaderboard of format {FORMAT}.")
        return cls(tuple(Entry.from_json(entry) for entry in content.get("entries", ())))


def cited(dataset: str) -> tuple[Entry, ...]:
    """Figures that others report on a dataset, and floors of ours, as entries without a command."""
    return tuple(_cited(figure) for figure in PUBLISHED if figure.dataset == dataset)


def score_text(score: str, value: float | None) -> str:
    """A score as people read it: percent, three digits, or a dash where it was not measured."""
    if value is None:
        return NOT_MEASURED
    if score in _PERCENT:
        return f"{value:,.1f} %" if abs(value) < 1000 else f"{value:,.0f} %"
    return f"{value:.3f}" if score in HIGHER_IS_BETTER else f"{value:,.4g}"


def value_text(entry: Entry) -> str:
    """The ranking score with its standard error, which one seed does not have."""
    text = score_text(entry.score, entry.value)
    if entry.value is None or entry.standard_error is None:
        return text
    digits = 3 if entry.score in HIGHER_IS_BETTER - _PERCENT else 2
    return f"{text} ± {entry.standard_error:.{digits}f}"


_SHOWN = ("mape", "median_ape", "spearman", "coverage_90", "mean_interval_ratio")


def _cited(figure: Published) -> Entry:
    scores: dict[str, Any] = {figure.score: figure.value} if figure.score in _SHOWN else {}
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
    judged = [entry for entry in entries if not entry.cited]
    newest = max(judged, key=lambda entry: entry.date or "", default=None)
    score = entries[0].score if newest is None else newest.score
    ranked: list[Ranked] = []
    for shots in sorted({entry.shots for entry in judged}):
        mine = sorted((e for e in judged if e.shots == shots), key=_best_first)
        notes = [_why_unranked(entry, newest, mine) for entry in mine]
        order = [_best_first(e) for e, note in zip(mine, notes, strict=True) if not note]
        for entry, note in zip(mine, notes, strict=True):
            rank = None if note else 1 + order.index(_best_first(entry))
            ranked.append(Ranked(entry, rank, note))
    for entry in sorted((e for e in entries if e.cited), key=_best_first):
        ranked.append(Ranked(entry, None, "cited, not judged here"))
    return Section(dataset, task, device, metric, score, tuple(ranked))


def _why_unranked(entry: Entry, newest: Entry | None, beside: Sequence[Entry]) -> str:
    if newest is None or entry.digest != newest.digest:
        return f"other data, {str(entry.digest)[:8]}"
    if entry.score != newest.score:
        return f"judged by {entry.score}"
    if entry.value is None:
        return "not measured"
    most = max(other.n or 0 for other in beside if other.digest == newest.digest)
    return f"answered {entry.n:,} of {most:,} rows" if (entry.n or 0) < most else ""


def _best_first(entry: Entry) -> tuple[bool, float]:
    if entry.value is None:
        return True, 0.0
    return False, -entry.value if entry.score in HIGHER_IS_BETTER else entry.value
