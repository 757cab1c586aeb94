"""Observations of one metric of a device by slice: live errors, and what changed."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Final

import numpy as np

from forerun.data.columns import Columns
from forerun.data.shapes import Int, Text
from forerun.training.monitoring.changes import (
    LEAST_SHIFT,
    Change,
    Groups,
    Values,
    changes,
    shift_at,
)
from forerun.training.scores.errors import slices_of

Positions = Int[np.ndarray, " k"]


@dataclass(frozen=True, slots=True)
class LiveError:
    """Errors of the answers about n observations.

    Attributes:
        rows: n.
        mape: mean absolute percentage error, percent of the measured value.
        median_ape: median absolute percentage error, percent.
        bias: median of log(measured / answered); 0.1 says that runs take about 10 % more than was
            answered.
        rows_with_interval: observations whose answer had a 90 % interval.
        coverage_90: share of those that lie inside it, percent; None where there are none.
    """

    rows: int
    mape: float
    median_ape: float
    bias: float
    rows_with_interval: int
    coverage_90: float | None

    @classmethod
    def of(cls, log_ratios: Values, inside: Values) -> "LiveError":
        """The errors of n answers, at least one.

        Args:
            log_ratios: log(measured / answered), finite.
            inside: 1 where the measured value lies in the interval, 0 where it does not, NaN where
                the answer had none.

        Raises:
            ValueError: there is no row, or one is not finite.
        """
        if not len(log_ratios) or not np.isfinite(log_ratios).all():
            raise ValueError("live errors need finite log ratios, at least one")
        errors = 100.0 * np.abs(np.expm1(-log_ratios))
        known = inside[~np.isnan(inside)]
        return cls(
            rows=len(log_ratios),
            mape=float(errors.mean()),
            median_ape=float(np.median(errors)),
            bias=float(np.median(log_ratios)),
            rows_with_interval=len(known),
            coverage_90=100.0 * float(known.mean()) if len(known) else None,
        )


FEWEST_ROWS: Final = 20
"""Fewest observations of a slice that is reported."""
LIVE_ROWS: Final = 1_000
"""The newest observations of a slice from which its live errors are computed."""
RECENT_ROWS: Final = 20
"""The newest observations of a slice, which say which answers are those of now."""
SAME_ANSWER: Final = 0.005
"""Largest change of the answer about one workload, as a logarithm, with which it is the same."""


@dataclass(frozen=True)
class ObservedRows(Columns):
    """n observations of one metric of a device, in the order of time.

    Attributes:
        log_ratios: log(measured / answered), finite.
        inside: 1 where the measured value lies in the interval of its answer, 0 where it does not,
            NaN where the answer had none.
        workloads: the workload of each: rows of one are alike but for small changes of size.
        epochs: number of the generation of answers, which grows when the answers change.
        facts: property of a slice (kind, family, precision) -> its values; empty text for none.
    """

    log_ratios: Values
    inside: Values
    workloads: Groups
    epochs: Groups
    facts: Mapping[str, Text[np.ndarray, " n"]]

    def __len__(self) -> int:
        return len(self.log_ratios)

    def levels(self) -> Groups:
        """Numbers that are equal for rows of one workload with answers of one generation."""
        count = int(self.epochs.max(initial=0)) + 1
        return np.asarray(self.workloads * count + self.epochs)


@dataclass(frozen=True)
class SliceReport:
    """What the observations of a slice say.

    Attributes:
        slice: property -> value, of those that the slice fixes; empty for the whole device.
        positions: positions of its rows among those of the device, in the order of time.
        live: errors of the newest generation of answers, at most of its newest `LIVE_ROWS` rows.
        changes: changes of level, with positions among the rows of the device.
        alarm: the newest change, as long as the answers are those of its time and the level is not
            back at the reference; None otherwise.
    """

    slice: Mapping[str, str]
    positions: Positions
    live: LiveError
    changes: tuple[Change, ...]
    alarm: Change | None


def slice_reports(rows: ObservedRows) -> list[SliceReport]:
    """A report of each slice with `FEWEST_ROWS` rows, those of fewer properties first.

    A slice that holds the same rows as one of fewer properties is left out.
    """
    return [
        _report(rows, fixed, positions)
        for fixed, positions in slices_of({k: v.tolist() for k, v in rows.facts.items()}, len(rows))
        if len(positions) >= FEWEST_ROWS
    ]


def plainest(rows: ObservedRows, reports: Sequence[SliceReport]) -> list[SliceReport]:
    """The alarms that say all: the widest slice of each change in which nothing stayed as it was.

    A wider slice is left out where its rows outside a narrower one with an alarm have not changed,
    and a narrower one where a wider one that stays says the same.

    Args:
        rows: the observations of the device.
        reports: `slice_reports` of them.
    """
    alarms = [report for report in reports if report.alarm is not None]
    whole = [
        wider
        for wider in alarms
        if not any(_is_all_of(rows, wider, own) for own in alarms if _contains(wider, own))
    ]
    return [
        own
        for own in whole
        if not any(_says_the_same(wider, own) for wider in whole if _contains(wider, own))
    ]


def epochs_of(versions: Sequence[str], questions: Sequence[Hashable], answers: Values) -> Groups:
    """Number of the generation of answers of each row, from 0.

    A new version begins a new generation, unless questions that were asked before have the same
    answers as then: a version also changes with measurements of another device.

    Args:
        versions: version of the predictor of each of n rows, in the order of time.
        questions: what was asked, equal for equal questions.
        answers: what was answered.
    """
    generation: dict[str, int] = {}
    newest: dict[Hashable, tuple[int, float]] = {}
    order = {version: place for place, version in enumerate(dict.fromkeys(versions))}
    compared: dict[str, list[bool]] = {version: [] for version in order}
    for version, question, answer in zip(versions, questions, answers.tolist(), strict=True):
        known = newest.get(question)
        if known is not None and known[0] != order[version]:
            compared[version].append(abs(log(answer / known[1])) <= SAME_ANSWER)
        newest[question] = order[version], answer
    number = -1
    for version in order:
        same = bool(compared[version]) and all(compared[version])
        number += 0 if same and number >= 0 else 1
        generation[version] = number
    return np.array([generation[version] for version in versions], dtype=np.int64)


def _report(rows: ObservedRows, fixed: Mapping[str, str], positions: Positions) -> SliceReport:
    own = rows.take(positions)
    current = _current(own.epochs)
    newest = np.flatnonzero(own.epochs == current)[-LIVE_ROWS:]
    found = changes(own.log_ratios, own.levels())
    return SliceReport(
        fixed,
        positions,
        LiveError.of(own.log_ratios[newest], own.inside[newest]),
        tuple(_among(change, positions) for change in found),
        _alarm([c for c in found if own.epochs[c.noticed] == current], positions),
    )


def _among(change: Change, positions: Positions) -> Change:
    """The change with positions among all rows of the device."""
    start, noticed = int(positions[change.start]), int(positions[change.noticed])
    return replace(change, start=start, noticed=noticed)


def _alarm(current: Sequence[Change], positions: Positions) -> Change | None:
    """The newest of the changes of the answers of now, unless they are undone in all."""
    if not current or abs(sum(change.shift for change in current)) < LEAST_SHIFT:
        return None
    return _among(current[-1], positions)


def _current(epochs: Groups) -> int:
    """The generation of most of the newest answers; some were given before they were measured."""
    numbers, counts = np.unique(epochs[-RECENT_ROWS:], return_counts=True)
    return int(numbers[np.argmax(counts)])


def _contains(wider: SliceReport, own: SliceReport) -> bool:
    """Whether a slice has all rows of another, and more."""
    more = len(wider.positions) > len(own.positions)
    return more and bool(np.isin(own.positions, wider.positions).all())


def _is_all_of(rows: ObservedRows, wider: SliceReport, own: SliceReport) -> bool:
    """Whether the wider slice changed in these rows alone, and nowhere else when it did."""
    assert wider.alarm is not None
    rest = np.setdiff1d(wider.positions, own.positions)
    start = int(np.searchsorted(rest, wider.alarm.start))
    if min(start, len(rest) - start) < FEWEST_ROWS:
        return False
    other = rows.take(rest)
    shift, *_ = shift_at(other.log_ratios, other.levels(), start)
    return abs(shift) < LEAST_SHIFT


def _says_the_same(wider: SliceReport, own: SliceReport) -> bool:
    one, other = own.alarm, wider.alarm
    assert one is not None and other is not None
    return one.shift * other.shift > 0 and one.low <= other.high and other.low <= one.high
