"""Score few-shot adaptation: errors on held-out rows, by cross-validation over groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self, assert_never

import numpy as np
from numpy.typing import NDArray

from forerun.data.columns import Column
from forerun.data.language_models.deployment import LlmDeployment
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.models.answers.whole import WholeAnswers
from forerun.models.prediction import Predictions
from forerun.models.predictor import Predictor
from forerun.service.schemas.measured_rows import NAMES

MOST_REFITS = 50
"""Most groups that are held out one by one."""
FEW_FOLDS = 10
"""Most folds where groups are not held out one by one."""
FEWEST_ROWS = 5
"""Fewest residuals from which a further gain is estimated."""
ROUNDING = 0.05
"""Errors are shown to a tenth of a percentage point."""
ENOUGH = 0.01
"""Bound on the gain of further rows, in relative error, below which the rows are sufficient."""


@dataclass(frozen=True, slots=True)
class MetricError:
    """One metric's error before adaptation, and after adaptation to the other folds.

    Attributes:
        rows: number of rows with a measured value and a prediction.
        mape_before, mape_after: mean absolute percentage error; `after` is None where no row
            remained for adaptation.
        width_before, width_after: median ratio of the interval's upper to its lower end; None
            without intervals.
        held_before, held_after: share of rows inside their interval; None without intervals.
        gain: upper bound on how much further rows would lower the expected relative error (0.01
            is one percentage point); None where there are too few rows to estimate it.
        by_group: model or operator -> mean absolute percentage error of its rows, adapted without
            any row of that group; empty where no row remained for adaptation.
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
        """Share of held-out rows inside the prediction interval after adaptation."""
        return self.held_after

    @property
    def enough(self) -> bool:
        """Whether further rows would lower the error by less than one percentage point."""
        return self.gain is not None and self.gain < ENOUGH

    @property
    def worse(self) -> bool:
        """Whether the release has a smaller error on these rows, by what is shown of it."""
        return self.mape_after is not None and self.mape_after > self.mape_before + ROUNDING

    def cells(self) -> tuple[str, ...]:
        """Rows, errors and intervals before and after, in words."""
        intervals = ((self.width_before, self.held_before), (self.width_after, self.held_after))
        return (
            str(self.rows),
            f"{self.mape_before:.1f} %",
            "" if self.mape_after is None else f"{self.mape_after:.1f} %",
            *(
                "" if width is None or held is None else f"x{width:.2f}, {100 * held:.0f} %"
                for width, held in intervals
            ),
        )


def without_help(metrics: Mapping[str, MetricError]) -> list[str]:
    """A sentence about metrics whose error adaptation raises; none where there are none."""
    worse = [name for name, error in metrics.items() if error.worse]
    if not worse:
        return []
    return [
        f"adaptation raised the error of held-out rows over that of the release: "
        f"{', '.join(worse)}. The adapted predictor is in use all the same: check how the rows "
        "were measured, or roll back"
    ]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Errors by metric, from a cross-validation over groups of rows.

    Attributes:
        metrics: metric -> its errors.
        folds: number of folds; each adaptation used all rows outside its fold.
        one_by_one: whether each fold held out a single model or operator.
    """

    metrics: Mapping[str, MetricError]
    folds: int
    one_by_one: bool

    @property
    def enough(self) -> bool:
        """Whether further rows would lower each metric's error by less than a percentage point."""
        return bool(self.metrics) and all(error.enough for error in self.metrics.values())


def held_out(
    base: WholeAnswers | Predictor,
    measured: Measurements,
    before: Predictions,
    earlier: Measurements | None = None,
    budget_s: float = np.inf,
    adapt_s: float = 0.0,
) -> HeldOut:
    """Cross-validate the adaptation to measured rows, with groups held out together.

    A group is all runs of one model, or of one operator's shapes, whatever their batch size,
    precision, execution mode or version, because one of them would leak into the others. Where all
    rows belong to one model, its settings are the groups. Each group is held out alone unless there
    are more than `MOST_REFITS` groups or that many adaptations would exceed the budget; then there
    are at most `FEW_FOLDS` folds.

    Args:
        base: the answers, or a predictor, that are not adapted to the device.
        measured: the rows to score.
        before: predictions of `base` for these rows.
        earlier: further rows to adapt to; those of a held-out group are left out.
        budget_s: time for all adaptations, seconds.
        adapt_s: time of one adaptation, seconds.
    """
    rows = measured if earlier is None else measured + earlier
    runs = [Identity.of(query) for query in rows.queries]
    keys = [run.group for run in runs]
    if len(set(keys)) == 1:
        # With a single model, only its batch sizes and settings can be held out.
        keys = [run.key for run in runs]
    groups = list(dict.fromkeys(keys[: len(measured)]))
    affordable = budget_s / max(adapt_s, 1e-6)
    one_by_one = len(groups) <= min(MOST_REFITS, affordable)
    count = len(groups) if one_by_one else int(min(max(affordable, 2), FEW_FOLDS, len(groups)))
    fold = {key: index % count for index, key in enumerate(groups)}
    folds = np.array([fold.get(key, -1) for key in keys])
    after = _Columns.empty(len(measured))
    for number in range(count):
        held = np.flatnonzero(folds[: len(measured)] == number)
        rest = rows.take(folds != number)
        if len(rest):
            after.fill(held, base.adapt(rest).predict(measured.take(held).queries))
    classes = len({run.alike for run in runs[: len(measured)]})
    unadapted = _Columns.empty(len(measured))
    unadapted.fill(np.arange(len(measured)), before)
    labels = [run.name for run in runs[: len(measured)]]
    errors = {
        name: error
        for name in NAMES
        if (error := _error(name, measured.values, unadapted, after, classes, labels)) is not None
    }
    return HeldOut(errors, count, one_by_one)


@dataclass(frozen=True)
class _Columns:
    """Predictions for all rows by metric, filled fold by fold; NaN where there is none."""

    values: Mapping[str, Column]
    low: Mapping[str, Column]
    high: Mapping[str, Column]

    @classmethod
    def empty(cls, rows: int) -> "_Columns":
        return cls(*({name: np.full(rows, np.nan) for name in NAMES} for _ in range(3)))

    def fill(self, indices: NDArray[np.intp], predictions: Predictions) -> None:
        for side in ("values", "low", "high"):
            columns, predicted = getattr(self, side), getattr(predictions, side)
            for name in set(columns) & set(predicted):
                columns[name][indices] = predicted[name]


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
    scored = ~np.isnan(truth) & ~np.isnan(before.values[name])
    if not scored.any():
        return None
    truth = truth[scored]
    ends = [(side.low[name][scored], side.high[name][scored]) for side in (before, after)]
    (wide_before, held_before), (wide_after, held_after) = (
        (_width(low, high), _held(truth, low, high)) for low, high in ends
    )
    return MetricError(
        int(scored.sum()),
        _mape(truth, before.values[name][scored]) or 0.0,
        _mape(truth, after.values[name][scored]),
        wide_before,
        wide_after,
        held_before,
        held_after,
        _gain(np.log(truth / after.values[name][scored]), classes),
        _by_group(truth, after.values[name][scored], np.array(labels)[scored]),
    )


def _by_group(truth: Column, predicted: Column, labels: NDArray[np.str_]) -> Mapping[str, float]:
    errors = {
        str(label): _mape(truth[labels == label], predicted[labels == label])
        for label in np.unique(labels)
    }
    return {label: error for label, error in errors.items() if error is not None}


def _mape(truth: Column, predicted: Column) -> float | None:
    known = ~np.isnan(predicted)
    return float(100 * np.mean(np.abs(predicted / truth - 1)[known])) if known.any() else None


def _width(low: Column, high: Column) -> float | None:
    known = ~np.isnan(low) & (low > 0)
    return float(np.median(high[known] / low[known])) if known.any() else None


def _held(truth: Column, low: Column, high: Column) -> float | None:
    known = ~np.isnan(low)
    return float(np.mean((low <= truth)[known] & (truth <= high)[known])) if known.any() else None


def _gain(residuals: Column, classes: int) -> float | None:
    """Upper bound on how much further rows could lower the error.

    Adaptation estimates a mean residual for each class of workloads, and that estimate has the
    standard error of the mean. The expected error is sqrt(s^2 + e^2), where s is the standard
    deviation of the residuals and e is the standard error; with unlimited rows only s remains.

    Args:
        residuals: n values of log(measured / predicted) of held-out rows; NaN where unknown.
        classes: number of workload classes; each has its own mean, estimated from its rows alone.

    Returns:
        sqrt(s^2 + e^2) - s; None with fewer than `FEWEST_ROWS` residuals.
    """
    known = residuals[~np.isnan(residuals)]
    if len(known) < FEWEST_ROWS:
        return None
    deviation = float(np.std(known, ddof=1))
    error = deviation / np.sqrt(len(known) / classes)
    return float(np.hypot(deviation, error) - deviation)


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells measured runs apart.

    Attributes:
        key: equal for runs of the same workload under the same settings.
        group: equal for runs of one model, or of one operator with the same shapes.
        name: name of that model, or of the operator and its shapes.
        alike: equal for workloads of one class, whose residuals have one mean.
    """

    key: tuple[object, ...]
    group: tuple[object, ...]
    name: str
    alike: tuple[str, ...]

    @classmethod
    def of(cls, query: Query) -> Self:
        """The identity of a run of an operator, a network or a deployment."""
        setting, runtime = (query.software, query.operation), query.software.runtime
        if isinstance(query.workload, LlmDeployment):
            own, model = query.workload, query.workload.model
            name = f"{model.family} of {model.parameters() / 1e9:.3g} billion parameters"
            return cls((own, *setting), (model,), name, (own.kind, own.engine.name))
        run = query.run
        match run:
            case Kernel(operator=op):
                attributes = tuple(sorted(op.attributes.items()))
                group = (op.kind, op.input_shapes, op.output_shapes, attributes)
                name = f"{op.kind} {', '.join('x'.join(map(str, own)) for own in op.input_shapes)}"
                return cls((*group, run.precision, *setting), group, name,
                           (run.kind, op.kind, runtime))  # fmt: skip
            case Network():
                digest = run.graph.digest
                key = (digest, run.batch_size, run.phase, run.training, run.precision, *setting)
                alike = (run.kind, run.phase, runtime)
                return cls(key, (digest,), f"network {digest[:8]}", alike)
            case _:
                assert_never(run)


def key_of(query: Query) -> tuple[object, ...]:
    """A key that is equal for runs of the same workload under the same settings."""
    return Identity.of(query).key
