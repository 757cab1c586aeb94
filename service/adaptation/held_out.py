"""What a few measurements are worth: errors on rows that an adaptation did not see."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.models.prediction import Column, Predictions
from forerun.models.predictor import Predictor
from forerun.service.schemas.measured_rows import NAMES

MOST_REFITS = 50
FEW_FOLDS = 10
FEWEST_ROWS = 5
ENOUGH = 0.01
"""Share of the error that any number of further rows may take away, below which it is enough."""


@dataclass(frozen=True, slots=True)
class MetricError:
    """One metric's error on the rows, before they were shown and with them held out in turn.

    Attributes:
        rows: how many rows have a measured value and an answer.
        mape_before, mape_after: mean absolute percentage error; `after` is None where no other
            row was left to learn from.
        width_before, width_after: median of the interval's high over low; None without intervals.
        held_before, held_after: share of rows inside their interval; None without intervals.
        by_group: model or operator -> mean absolute percentage error of its rows, adapted without
            any row of it; empty where no other row was left.
        gain: by how much further rows would lower the typical relative error at most (0.01 is a
            point); None where too few rows tell.
    """

    rows: int
    mape_before: float
    mape_after: float | None
    width_before: float | None
    width_after: float | None
    held_before: float | None
    held_after: float | None
    gain: float | None
    by_group: Mapping[str, float] = field(default_factory=dict)

    @property
    def coverage(self) -> float | None:
        """Share of held-out rows inside the interval of an adaptation that did not see them."""
        return self.held_after

    @property
    def enough(self) -> bool:
        """Whether further rows would gain less than a point."""
        return self.gain is not None and self.gain < ENOUGH


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Errors by metric, and in how many parts the rows were held out.

    Attributes:
        metrics: metric -> its errors.
        folds: adaptations that were made; each saw all rows but those that it was judged on.
        one_by_one: whether each held out one model or operator.
    """

    metrics: Mapping[str, MetricError]
    folds: int
    one_by_one: bool

    @property
    def enough(self) -> bool:
        """Whether further rows would gain less than a point in every metric."""
        return bool(self.metrics) and all(error.enough for error in self.metrics.values())


def held_out(
    base: Predictor,
    measured: Measurements,
    before: Predictions,
    earlier: Measurements | None = None,
    budget_s: float = np.inf,
    adapt_s: float = 0.0,
) -> HeldOut:
    """Errors of the predictor before, and adapted on all rows but those judged.

    Runs of one model, or of one operator's shape, are held out together, whatever their batch size,
    precision, execution mode or version: one of them would give away the others. Where all rows are
    of one model, its settings are held out in turn. With more than `MOST_REFITS` of them, or where
    adapting that often would take longer than the budget, they are held out in `FEW_FOLDS` parts or
    fewer.

    Args:
        base: not adapted to the device.
        measured: the rows to judge.
        before: what `base` says of them.
        earlier: further rows to learn from; runs of the model judged are left out of them.
        budget_s: time that the adaptations may take.
        adapt_s: time that one takes.
    """
    rows = measured if earlier is None else measured + earlier
    keys = [group_of(query) for query in rows.queries]
    if len(set(keys)) == 1:
        # Of one model only, its batch sizes and settings are what can be held out.
        keys = [key_of(query) for query in rows.queries]
    judged = list(dict.fromkeys(keys[: len(measured)]))
    affordable = budget_s / max(adapt_s, 1e-6)
    one_by_one = len(judged) <= min(MOST_REFITS, affordable)
    count = len(judged) if one_by_one else int(min(max(affordable, 2), FEW_FOLDS, len(judged)))
    fold = {key: place % count for place, key in enumerate(judged)}
    folds = np.array([fold.get(key, -1) for key in keys])
    after = _Columns.empty(len(measured))
    for number in range(count):
        mine = np.flatnonzero(folds[: len(measured)] == number)
        rest = rows.take(folds != number)
        if len(rest):
            after.fill(mine, base.adapt(rest).predict(measured.take(mine).queries))
    classes = len({_class(query) for query in measured.queries})
    said = _Columns.empty(len(measured))
    said.fill(np.arange(len(measured)), before)
    labels = [group_name(query) for query in measured.queries]
    found = {
        name: error
        for name in NAMES
        if (error := _error(name, measured.values, said, after, classes, labels)) is not None
    }
    return HeldOut(found, count, one_by_one)


@dataclass(frozen=True)
class _Columns:
    """Answers to all rows, filled fold by fold; NaN where there is none."""

    values: Mapping[str, Column]
    low: Mapping[str, Column]
    high: Mapping[str, Column]

    @classmethod
    def empty(cls, rows: int) -> "_Columns":
        return cls(*({name: np.full(rows, np.nan) for name in NAMES} for _ in range(3)))

    def fill(self, places: NDArray[np.intp], said: Predictions) -> None:
        sides = ((self.values, said.values), (self.low, said.low), (self.high, said.high))
        for mine, theirs in sides:
            for name in set(mine) & set(theirs):
                mine[name][places] = theirs[name]


def _error(
    name: str,
    measured: Mapping[str, Column],
    before: _Columns,
    after: _Columns,
    classes: int,
    labels: Sequence[str],
) -> MetricError | None:
    truth = measured.get(name, np.zeros(0))
    if not len(truth):
        return None
    judged = ~np.isnan(truth) & ~np.isnan(before.values[name])
    if not judged.any():
        return None
    truth = truth[judged]
    ends = [(side.low[name][judged], side.high[name][judged]) for side in (before, after)]
    (wide_before, held_before), (wide_after, held_after) = (
        (_width(low, high), _held(truth, low, high)) for low, high in ends
    )
    return MetricError(
        int(judged.sum()),
        _mape(truth, before.values[name][judged]) or 0.0,
        _mape(truth, after.values[name][judged]),
        wide_before,
        wide_after,
        held_before,
        held_after,
        _gain(np.log(truth / after.values[name][judged]), classes),
        _by_group(truth, after.values[name][judged], np.array(labels)[judged]),
    )


def _by_group(truth: Column, said: Column, labels: NDArray[np.str_]) -> Mapping[str, float]:
    errors = {
        str(label): _mape(truth[labels == label], said[labels == label])
        for label in np.unique(labels)
    }
    return {label: error for label, error in errors.items() if error is not None}


def _mape(truth: Column, said: Column) -> float | None:
    known = ~np.isnan(said)
    return float(100 * np.mean(np.abs(said / truth - 1)[known])) if known.any() else None


def _width(low: Column, high: Column) -> float | None:
    known = ~np.isnan(low) & (low > 0)
    return float(np.median(high[known] / low[known])) if known.any() else None


def _held(truth: Column, low: Column, high: Column) -> float | None:
    known = ~np.isnan(low)
    return float(np.mean((low <= truth)[known] & (truth <= high)[known])) if known.any() else None


def _gain(residuals: Column, classes: int) -> float | None:
    """How far the error could fall with any number of further rows.

    What rows teach a class of work is its level, known to within the standard error of the mean
    residual. The expected error is the root of spread squared and standard error squared; endless
    rows would leave the spread.

    Args:
        residuals: log(measured / answer) of rows held out.
        classes: of work; each has a level of its own, so that its rows alone tell it.
    """
    known = residuals[~np.isnan(residuals)]
    if len(known) < FEWEST_ROWS:
        return None
    spread = float(np.std(known, ddof=1))
    error = spread / np.sqrt(len(known) / classes)
    return float(np.hypot(spread, error) - spread)


def key_of(query: Query) -> tuple[object, ...]:
    """Equal for runs of one workload."""
    run = query.run
    if run.kind == "kernel":
        op = run.operator
        attributes = tuple(sorted(op.attributes.items()))
        what: tuple[object, ...] = (op.kind, op.input_shapes, op.output_shapes, attributes)
    else:
        what = (run.graph.digest, run.batch_size, run.phase, run.training)
    return (*what, run.precision, query.software, query.operation)


def group_of(query: Query) -> tuple[object, ...]:
    """Equal for runs of one model, or of one operator's shape."""
    run = query.run
    return key_of(query)[:4] if run.kind == "kernel" else (run.graph.digest,)


def group_name(query: Query) -> str:
    """The model, or the operator with its shape, for people."""
    run = query.run
    if run.kind == "kernel":
        shapes = ", ".join("x".join(map(str, shape)) for shape in run.operator.input_shapes)
        return f"{run.operator.kind} {shapes}"
    return f"network {run.graph.digest[:8]}"


def _class(query: Query) -> Sequence[str]:
    run = query.run
    kind = run.operator.kind if run.kind == "kernel" else run.phase
    return (run.kind, kind, query.software.runtime)
