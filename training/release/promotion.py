"""Compare a candidate with the champion: which regressions would a promotion cause?

Regressions are: a metric or kind of workload that is no longer supported; a protocol that is no
longer scored or answered; an error that grew by more than the variation between seeds; coverage of
prediction intervals that fell below the nominal one; an error that grew beyond the noise in a slice
of any dataset or of users' held-out measurements; and a retrained candidate that was evaluated on
no held-out measurement. Settings with too few held-out rows to judge a change are listed, but are
not regressions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Final

from forerun.data.errors import BadArtifact
from forerun.data.level import LEVEL
from forerun.data.query import Query
from forerun.models.answers.trust import ENOUGH_ROWS, checked
from forerun.models.artifact.examples import example_queries
from forerun.models.artifact.sealed_folder import check, load_sealed
from forerun.models.artifact.training_record import TrainingRecord
from forerun.models.predictor import Predictor
from forerun.training.evaluation.cells import changes
from forerun.training.evaluation.stored import stored_with
from forerun.training.leaderboard.entries import HIGHER_IS_BETTER
from forerun.training.leaderboard.store import score_of
from forerun.training.retraining.comparison import FILE as COMPARISON_FILE
from forerun.training.retraining.comparison import Comparison
from forerun.training.scores.errors import SEED_NOISE

Row = Mapping[str, Any]
STANDARD_ERRORS: Final = 2.0
"""A difference of at most this many combined standard errors is noise (about 95 % confidence)."""
PROMISED_COVERAGE: Final = 100.0 * LEVEL
EVALUATED: Final = "evaluated"
"""Field of a difference that reports that no held-out measurement was available."""


@dataclass(frozen=True)
class Difference:
    """One difference between the champion and a candidate.

    Attributes:
        what: what differs, such as `timm_bench unseen_family/eager latency_ms`.
        field: `answers`, `scored`, `coverage_90`, `compared`, `evaluated`, or the score that ranks
            the task.
        before: value of the champion; None if it has none.
        after: value of the candidate; None if it has none.
        noise: difference that seeds alone may cause, in the unit of the score.
        lost: whether it is a regression, or the evidence to rule one out is missing.
    """

    what: str
    field: str
    before: float | None
    after: float | None
    noise: float = 0.0
    lost: bool = False

    def text(self) -> str:
        """The difference as one line of text."""
        if self.field == EVALUATED:
            return f"not evaluated, because {self.what}"
        before, after = (_figure(value) for value in (self.before, self.after))
        return f"{self.what}, {self.field}: {before} -> {after}"


def differences(champion: Path, candidate: Path) -> tuple[Difference, ...]:
    """All differences between two sealed predictors, regressions first.

    Args:
        champion: folder of the current predictor.
        candidate: folder of the predictor that may replace it.
    """
    changes = [
        *_answers(champion, candidate),
        *_scores(champion, candidate),
        *in_slices(stored_with(champion), stored_with(candidate)),
        *_on_measurements(champion, candidate),
        *(
            Difference(what, EVALUATED, 1.0, 0.0)
            for what in not_judged(TrainingRecord.read(candidate))
        ),
    ]
    return tuple(sorted(changes, key=lambda difference: not difference.lost))


def not_judged(record: TrainingRecord) -> list[str]:
    """Settings with training rows whose coverage is not known from held-out runs.

    Such answers never have grade A (`models/answers/trust.py`).
    """
    return [
        f"{' '.join(filter(None, astuple(setting)))}: {checked(judged)}"
        for setting, judged in record.unjudged(ENOUGH_ROWS).items()
    ]


def _answers(champion: Path, candidate: Path) -> Iterator[Difference]:
    """Metrics and example queries that only one of the two predictors supports."""
    before, after = supported_by(champion), supported_by(candidate)
    for name in sorted(before ^ after):
        known, now = float(name in before), float(name in after)
        yield Difference(name, "answers", known, now, lost=not now)


def supported_by(folder: Path) -> frozenset[str]:
    """What a sealed predictor supports: its metrics, overall and for an example of each workload.

    Returns:
        Texts such as `power_w` and `latency_ms of network training fp32 on l4`; empty for a folder
        that cannot be loaded.
    """
    try:
        predictor = load_sealed(folder).predictor
    except (BadArtifact, KeyError):
        return frozenset()
    supported = set(predictor.metrics)
    for name, query in example_queries():
        supported |= {f"{metric} of {name}" for metric in _metrics(predictor, query)}
    return frozenset(supported)


def _metrics(predictor: Predictor, query: Query) -> Sequence[str]:
    return tuple(predictor.predict([query])[0].estimates) if predictor.answers(query) else ()


def _scores(champion: Path, candidate: Path) -> Iterator[Difference]:
    before, after = stored_scores(champion), stored_scores(candidate)
    for key, (dataset, old) in before.items():
        what = " ".join(filter(None, key))
        if key not in after:
            yield Difference(what, "scored", 1.0, 0.0, lost=True)
            continue
        new = after[key][1]
        field = score_of(dataset, old)
        yield from _unanswered(what, old, new)
        yield from _error(what, field, old, new)
        yield from _coverage(what, old, new)
    for key in after.keys() - before.keys():
        yield Difference(" ".join(filter(None, key)), "scored", 0.0, 1.0)


def stored_scores(folder: Path) -> dict[tuple[str, ...], tuple[str, Row]]:
    """(dataset, task, device, metric) -> dataset and row of `scores.json`; empty without the file.

    If several predictors were evaluated in one task, the row of the best one is taken.
    """
    best: dict[tuple[str, ...], tuple[str, Row]] = {}
    for evaluation in stored_with(folder):
        dataset = str(evaluation["dataset"])
        for row in evaluation["tasks"]:
            key = (dataset, row["task"], row["device"] or "", row["metric"])
            field = score_of(dataset, row)
            if key not in best or _worse_by(field, row.get(field), best[key][1].get(field)) < 0:
                best[key] = (dataset, row)
    return best


def in_slices(before: Sequence[Row], after: Sequence[Row]) -> Iterator[Difference]:
    """The slices of any dataset whose error changed beyond the noise, worst first.

    An error counts as lost only if it grew by more than two fits with different seeds differ.

    Args:
        before: evaluations of the champion, as in `scores.json`.
        after: evaluations of the candidate.
    """
    found = []
    for task, change in changes(before, after):
        grown = change.after - change.before
        if change.low <= 0.0 <= change.high or abs(grown) <= SEED_NOISE * change.before:
            continue
        noise = max((change.high - change.low) / 2.0, SEED_NOISE * change.before)
        what = f"{task} {change.name}"
        found.append(
            Difference(what, "mape", change.before, change.after, noise, lost=change.is_worse)
        )
    yield from sorted(
        found, key=lambda difference: -((difference.after or 0.0) - (difference.before or 0.0))
    )


def _on_measurements(champion: Path, candidate: Path) -> Iterator[Difference]:
    """Errors on held-out measurements of users, if the candidate was retrained on others.

    A slice is lost if its whole confidence interval is above 0. The comparison as a whole is lost
    if it was made with another champion, or if it has no slice.
    """
    file = candidate / COMPARISON_FILE
    if not file.is_file():
        return
    comparison = Comparison.model_validate_json(file.read_bytes())
    version = check(champion).version
    if version not in (comparison.champion, check(candidate).version):
        what = f"measurements, compared with {comparison.champion} and not with {version}"
        yield Difference(what, "compared", 1.0, 0.0, lost=True)
        return
    if not comparison.slices:
        what = (
            "fewer than five workloads that both answer are held out "
            f"({comparison.held_out_rows} held-out measurements in all)"
        )
        yield Difference(what, EVALUATED, 1.0, 0.0, lost=True)
    for name in comparison.unknown:
        yield Difference(f"{name}: none of it is held out", EVALUATED, 1.0, 0.0)
    for change in comparison.slices:
        noise = (change.high - change.low) / 2.0
        what = f"measurements {change.name}"
        yield Difference(what, "mape", change.before, change.after, noise, lost=change.is_worse)


def _error(what: str, field: str, old: Row, new: Row) -> Iterator[Difference]:
    before, after = old.get(field), new.get(field)
    if before is None or before == after:
        return
    if after is None:
        yield Difference(what, field, before, None, lost=True)
        return
    errors = [row.get(f"{field}_standard_error") for row in (old, new)]
    known = [error for error in errors if error is not None]
    noise = SEED_NOISE * abs(before)
    if len(known) == len(errors):
        noise = STANDARD_ERRORS * float(sum(error**2 for error in known)) ** 0.5
    lost = _worse_by(field, after, before) > noise
    yield Difference(what, field, before, after, noise, lost)


def _unanswered(what: str, old: Row, new: Row) -> Iterator[Difference]:
    """A changed number of answers; a regression if more answers are missing than noise explains."""
    before, after = old.get("n"), new.get("n")
    if old.get("unanswered") is None or new.get("unanswered") is None or before == after:
        return
    noise = STANDARD_ERRORS * float(before or 0) ** 0.5
    lost = (before or 0) - (after or 0) > noise
    yield Difference(what, "n", before, after, noise, lost)


def _coverage(what: str, old: Row, new: Row) -> Iterator[Difference]:
    """A changed coverage; a regression if it fell below both the champion's and 90 %.

    The difference must exceed the binomial sampling noise of the smaller number of rows.
    """
    before, after = old.get("coverage_90"), new.get("coverage_90")
    if before is None or before == after:
        return
    share = PROMISED_COVERAGE / 100.0
    rows = max(1, min(int(old["n"] or 1), int(new["n"] or 1)))
    noise = 100.0 * STANDARD_ERRORS * (share * (1.0 - share) / rows) ** 0.5
    lost = after is None or after < min(before, PROMISED_COVERAGE) - noise
    yield Difference(what, "coverage_90", before, after, noise, lost)


def _worse_by(field: str, value: float | None, than: float | None) -> float:
    """By how much a score is worse than another; negative if it is better."""
    if value is None or than is None:
        return float(value is None) - float(than is None)
    return than - value if field in HIGHER_IS_BETTER else value - than


def _figure(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"
