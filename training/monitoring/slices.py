"""Live errors and level changes by slice, from the observations of one metric on one device."""

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
    """Errors of the answers to n observed questions.

    Attributes:
        rows: n.
        mape: mean absolute percentage error, percent of the measured value.
        median_ape: median absolute percentage error, percent.
        bias: median of log(measured / answered); at 0.1, runs take about 10 % longer than answered.
        rows_with_interval: observations whose answer had a 90 % interval.
        coverage_90: share of these that lie inside the interval, percent; None if there are none.
    """

    rows: int
    mape: float
    median_ape: float
    bias: float
    rows_with_interval: int
    coverage_90: float | None

    @classmethod
    def of(cls, log_ratios: Values, inside: Values) -> "LiveError":
        """The errors of n >= 1 answers.

        Args:
            log_ratios: log(measured / answered), finite.
            inside: 1 if the measured value lies in the interval, 0 if it does not, NaN if the
                answer had no interval.

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
"""Number of newest observations of a slice from which its live errors are computed."""
RECENT_ROWS: Final = 20
"""Number of newest observations of a slice that decide which generation of answers is current."""
SAME_ANSWER: Final = 0.005
"""Two answers about the same workload are the same if their logarithms differ by at most this."""


@dataclass(frozen=True)
class ObservedRows(Columns):
    """n observations of one metric on one device, in temporal order.

    Attributes:
        log_ratios: log(measured / answered), finite.
        inside: 1 if the measured value lies in the interval of its answer, 0 if it does not, NaN if
            the answer had no interval.
        workloads: the workload of each row; rows of one workload differ at most slightly in size.
        epochs: number of the generation of answers, which increases when the answers change.
        facts: property of a slice (kind, family, precision) -> value of each row; "" for none.
    """

    log_ratios: Values
    inside: Values
    workloads: Groups
    epochs: Groups
    facts: Mapping[str, Text[np.ndarray, " n"]]

    def __len__(self) -> int:
        return len(self.log_ratios)

    def levels(self) -> Groups:
        """Labels that are equal for rows with the same workload and generation of answers."""
        count = int(self.epochs.max(initial=0)) + 1
        return np.asarray(self.workloads * count + self.epochs)


@dataclass(frozen=True)
class SliceReport:
    """Live errors and changes of one slice.

    Attributes:
        slice: property -> value, for the properties that the slice fixes; empty for the whole
            device.
        positions: positions of its rows among those of the device, in temporal order.
        live: errors of the newest generation of answers, over at most its newest `LIVE_ROWS` rows.
        changes: level changes, with positions among the rows of the device.
        alarm: the newest change of the current generation of answers, unless the level has returned
            to the reference; otherwise None.
    """

    slice: Mapping[str, str]
    positions: Positions
    live: LiveError
    changes: tuple[Change, ...]
    alarm: Change | None


def slice_reports(rows: ObservedRows) -> list[SliceReport]:
    """A report for each slice of at least `FEWEST_ROWS` rows; slices with fewer properties first.

    A slice with the same rows as an earlier one is skipped.
    """
    return [
        _report(rows, fixed, positions)
        for fixed, positions in slices_of({k: v.tolist() for k, v in rows.facts.items()}, len(rows))
        if len(positions) >= FEWEST_ROWS
    ]


def plainest(rows: ObservedRows, reports: Sequence[SliceReport]) -> list[SliceReport]:
    """A minimal set of alarms: for each change, the widest slice that changed as a whole.

    A slice is dropped if its rows outside a narrower slice with an alarm have not changed. Of the
    remaining slices, one is dropped if a wider one reports the same change.

    Args:
        rows: the observations of the device.
        reports: their `slice_reports`.
    """
    alarms = [report for report in reports if report.alarm is not None]
    whole = [
        wider
        for wider in alarms
        if not any(
            _is_all_of(rows, wider, narrower) for narrower in alarms if _contains(wider, narrower)
        )
    ]
    return [
        narrower
        for narrower in whole
        if not any(_says_the_same(wider, narrower) for wider in whole if _contains(wider, narrower))
    ]


def epochs_of(versions: Sequence[str], questions: Sequence[Hashable], answers: Values) -> Groups:
    """Number of the generation of answers of each row, from 0.

    A new version begins a new generation, unless repeated questions get the same answers as before:
    measurements of another device also change the version.

    Args:
        versions: version of the predictor for each of n rows, in temporal order.
        questions: what was asked; equal values for equal questions.
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
    rows_of_slice = rows.take(positions)
    current = _current(rows_of_slice.epochs)
    newest = np.flatnonzero(rows_of_slice.epochs == current)[-LIVE_ROWS:]
    changes_found = changes(rows_of_slice.log_ratios, rows_of_slice.levels())
    return SliceReport(
        fixed,
        positions,
        LiveError.of(rows_of_slice.log_ratios[newest], rows_of_slice.inside[newest]),
        tuple(_among(change, positions) for change in changes_found),
        _alarm([c for c in changes_found if rows_of_slice.epochs[c.noticed] == current], positions),
    )


def _among(change: Change, positions: Positions) -> Change:
    """The change, with positions among all rows of the device."""
    start, noticed = int(positions[change.start]), int(positions[change.noticed])
    return replace(change, start=start, noticed=noticed)


def _alarm(current: Sequence[Change], positions: Positions) -> Change | None:
    """The newest change of the current answers, unless the changes cancel out."""
    if not current or abs(sum(change.shift for change in current)) < LEAST_SHIFT:
        return None
    return _among(current[-1], positions)


def _current(epochs: Groups) -> int:
    """The generation of most of the newest observations, some of which have an older answer."""
    numbers, counts = np.unique(epochs[-RECENT_ROWS:], return_counts=True)
    return int(numbers[np.argmax(counts)])


def _contains(wider: SliceReport, narrower: SliceReport) -> bool:
    """Whether a slice has all rows of another one, and more."""
    more = len(wider.positions) > len(narrower.positions)
    return more and bool(np.isin(narrower.positions, wider.positions).all())


def _is_all_of(rows: ObservedRows, wider: SliceReport, narrower: SliceReport) -> bool:
    """Whether the rows of the wider slice outside the narrower one did not change."""
    assert wider.alarm is not None
    rest = np.setdiff1d(wider.positions, narrower.positions)
    start = int(np.searchsorted(rest, wider.alarm.start))
    if min(start, len(rest) - start) < FEWEST_ROWS:
        return False
    rest_rows = rows.take(rest)
    shift, *_ = shift_at(rest_rows.log_ratios, rest_rows.levels(), start)
    return abs(shift) < LEAST_SHIFT


def _says_the_same(wider: SliceReport, narrower: SliceReport) -> bool:
    alarm, wider_alarm = narrower.alarm, wider.alarm
    assert alarm is not None and wider_alarm is not None
    return (
        alarm.shift * wider_alarm.shift > 0
        and alarm.low <= wider_alarm.high
        and wider_alarm.low <= alarm.high
    )
