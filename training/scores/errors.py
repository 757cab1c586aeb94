"""Scores of predictions: pure functions of measured and predicted values.

Relative errors, coverage and other shares are in percent. A score that is not defined for the given
rows is None, never NaN. Choices are scored by the alternative with the least predicted value.
Relative speeds P of co-located programs (the time when isolated over the time when co-located;
below 1 it is slowed) are scored by absolute errors and by the detection of slowdowns.

Two predictors are compared on the same rows by slice: all combinations of properties (device,
family, precision, phase). Rows of one group, such as a workload, are drawn together by the
bootstrap. A slice of few groups is judged by what there is: it got worse where each of its groups
did, by more than seeds explain.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field

from forerun.data.columns import Column, Mask
from forerun.data.shapes import Bool, Float64, Text
from forerun.models.colocation.slowed_class import SLOWED_BELOW

MOST = 1.2
"""P at which `mae_to_1.2` clips measured and predicted values: a program that gains from neighbours
needs no protection, and a few runs that wait for a disk gain twentyfold."""
SLOWED = (0.95, 0.9, 0.8)
"""Thresholds of P for the area under the ROC curve of slowed against other runs."""


def contention_scores(
    measured: Float64[np.ndarray, " n"],
    predicted: Float64[np.ndarray, " n"],
    repeats: Text[np.ndarray, " n"],
    baselines: Mapping[str, Float64[np.ndarray, " n"]],
    low: Float64[np.ndarray, " n"] | None = None,
) -> dict[str, float | None]:
    """Scores of predicted relative speeds, of baselines and of the measurement noise.

    Args:
        measured: P, shape (n,); NaN where it was not measured.
        predicted: predictions of P, shape (n,).
        repeats: keys, shape (n,); rows with the same key are repeats of one configuration.
        baselines: name -> predictions of P, shape (n,).
        low: lower ends of prediction intervals, shape (n,); NaN where the predictor reports a class
            instead of an interval; None where intervals are not scored.

    Returns:
        `mae`, `rmse` and `mae_to_1.2` (measured and predicted values clipped at 1.2);
        `auc_below_0.9` and further thresholds (None where all or no values are below);
        `mae_of_repeats`, the noise floor, which is the error of a prediction by the mean of all
        repeats (None without repeats), and `repeated_rows`, the number of rows it is computed from;
        `mae_NAME` of each baseline; for the class `slowed` the false positive rate `false_alarms`
        and the false negative rate `misses`, percent. With `low` also `share_with_interval`, and
        both rates over the rows without an interval (`false_alarms_of_class`, `misses_of_class`).
    """
    from sklearn.metrics import mean_absolute_error, root_mean_squared_error

    known = np.isfinite(measured) & np.isfinite(predicted)
    truth, answer = measured[known], predicted[known]
    if not len(truth):
        return {}
    scores: dict[str, float | None] = {
        "mae": float(mean_absolute_error(truth, answer)),
        "rmse": float(root_mean_squared_error(truth, answer)),
        "mae_to_1.2": _cut(truth, answer),
    }
    scores |= {f"auc_below_{level:g}": auc(truth < level, -answer) for level in SLOWED}
    scores["mae_of_repeats"] = noise(truth, repeats[known])
    scores["mae_of_repeats_to_1.2"] = noise(np.minimum(truth, MOST), repeats[known])
    scores["repeated_rows"] = float(repeated(repeats[known]).sum())
    scores["false_alarms"], scores["misses"] = class_errors(truth, answer)
    if low is not None:
        withheld = np.isnan(low[known])
        scores["share_with_interval"] = 100.0 * float((~withheld).mean())
        rates = class_errors(truth[withheld], answer[withheld])
        scores["false_alarms_of_class"], scores["misses_of_class"] = rates
    for name, column in baselines.items():
        scores[f"mae_{name}"] = float(np.abs(column[known] - truth).mean())
        scores[f"mae_{name}_to_1.2"] = _cut(truth, column[known])
    return scores


def auc(positive: Bool[np.ndarray, " n"], score: Float64[np.ndarray, " n"]) -> float | None:
    """Area under the ROC curve of `score` for the class `positive`; None unless both classes occur.

    It is the probability that a positive row has a higher score than a negative one, with ties
    counted half (the Mann-Whitney statistic).
    """
    from sklearn.metrics import roc_auc_score

    if len(np.unique(positive)) < 2:
        return None
    return float(roc_auc_score(positive, score))


def class_errors(
    measured: Float64[np.ndarray, " n"], predicted: Float64[np.ndarray, " n"]
) -> tuple[float | None, float | None]:
    """Error rates of the class `slowed`, a relative speed below `SLOWED_BELOW`, percent.

    Returns:
        False positive rate (among runs that were not slowed) and false negative rate (among slowed
        runs); None without such runs.
    """
    slowed, called = measured < SLOWED_BELOW, predicted < SLOWED_BELOW
    false_alarms = 100.0 * float(called[~slowed].mean()) if (~slowed).any() else None
    misses = 100.0 * float((~called[slowed]).mean()) if slowed.any() else None
    return false_alarms, misses


def repeated(repeats: Text[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
    """True for rows that share their key with another row, shape (n,)."""
    _, place, counts = np.unique(repeats, return_inverse=True, return_counts=True)
    again: Bool[np.ndarray, " n"] = counts[place] > 1
    return again


def noise(values: Float64[np.ndarray, " n"], repeats: Text[np.ndarray, " n"]) -> float | None:
    """Mean absolute deviation of repeated runs from their mean; None where no run was repeated.

    Rows without a repeat are ignored. Deviations from the mean of n repeats are multiplied by
    sqrt(n / (n - 1)), because they underestimate those from the true mean.

    Args:
        values: P, shape (n,).
        repeats: keys, shape (n,); rows with the same key are repeats of one configuration.
    """
    _, place, counts = np.unique(repeats, return_inverse=True, return_counts=True)
    middle = (np.bincount(place, weights=values) / counts)[place]
    again = repeated(repeats)
    if not again.any():
        return None
    count = counts[place][again]
    away = np.abs(values - middle)[again] * np.sqrt(count / (count - 1.0))
    return float(away.mean())


def _cut(one: Float64[np.ndarray, " n"], other: Float64[np.ndarray, " n"]) -> float:
    return float(np.abs(np.minimum(one, MOST) - np.minimum(other, MOST)).mean())


FEWEST_GROUPS: Final = 5
"""Fewest groups of a slice whose noise is that of the bootstrap."""
SEED_NOISE: Final = 0.05
"""Noise relative to a score where none is known. Two standard deviations of the difference of two
fits, over three seeds of the four tasks of `torch_op_energy`, are 0.5, 4, 4 and 10 % of the error.
"""
DRAWS: Final = 2_000
"""Draws of the bootstrap."""
TAIL_PERCENT: Final = 2.5


@dataclass(frozen=True)
class PairedErrors:
    """Errors of n rows, or means of so many rows, by two predictors.

    Attributes:
        before, after: absolute percentage errors, shape (n,).
        sizes: number of rows that each is the mean of, shape (n,).
        groups: group of each; those of one group are drawn together.
        facts: property -> value of each; "" for none.
    """

    before: Column
    after: Column
    sizes: Column
    groups: Sequence[str]
    facts: Mapping[str, Sequence[str]]

    @classmethod
    def of(
        cls,
        measured: Column,
        before: Column,
        after: Column,
        groups: Sequence[str],
        facts: Mapping[str, Sequence[str]],
    ) -> "PairedErrors":
        """Errors of two predictions, shape (n,), of n positive measured values."""
        errors = [100.0 * np.abs(predicted / measured - 1.0) for predicted in (before, after)]
        return cls(errors[0], errors[1], np.ones(len(measured)), groups, facts)


class SliceChange(BaseModel):
    """Both errors in one slice.

    Attributes:
        metric: name of the metric.
        slice: property -> value, of those that the slice fixes.
        rows, groups: number of rows, and of groups of them.
        before, after: mean absolute percentage errors.
        low, high: range of `after` - `before`, in percentage points: a 95 % confidence interval, or
            that of its groups where these are few.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    metric: str
    slice: dict[str, str]
    rows: int = Field(ge=1)
    groups: int = Field(ge=1)
    before: float
    after: float
    low: float
    high: float

    @property
    def name(self) -> str:
        """Metric and values, as one line."""
        return " ".join((self.metric, *self.slice.values()))

    @property
    def is_worse(self) -> bool:
        """Whether the error grew beyond its noise."""
        grown = self.after - self.before
        return self.low > 0.0 and (
            self.groups >= FEWEST_GROUPS or grown > SEED_NOISE * abs(self.before)
        )


def compared(metric: str, errors: PairedErrors, seed: int = 0) -> list[SliceChange]:
    """Both errors in each slice, wider slices first.

    Args:
        metric: name of the metric.
        errors: of the same rows.
        seed: seed of the bootstrap.
    """
    groups = np.asarray(errors.groups)
    found = []
    for fixed, chosen in _slices(errors.facts, len(groups)):
        sizes = errors.sizes[chosen]
        before, after = errors.before[chosen], errors.after[chosen]
        low, high = _range(after - before, sizes, groups[chosen], seed)
        own = SliceChange(
            metric=metric,
            slice=fixed,
            rows=int(sizes.sum()),
            groups=len(np.unique(groups[chosen])),
            before=float(np.average(before, weights=sizes)),
            after=float(np.average(after, weights=sizes)),
            low=low,
            high=high,
        )
        found.append(own)
    return found


def _slices(
    facts: Mapping[str, Sequence[str]], count: int
) -> Iterator[tuple[dict[str, str], np.ndarray]]:
    """The properties and the positions of each slice; equal ones count once."""
    seen: set[str] = set()
    for size in range(len(facts) + 1):
        for names in combinations(facts, size):
            labels = list(zip(*(facts[name] for name in names), strict=True)) or [()] * count
            chosen: dict[tuple[str, ...], list[int]] = {}
            for row, values in enumerate(labels):
                chosen.setdefault(values, []).append(row)
            for values, rows in sorted(chosen.items()):
                mark = hashlib.sha256(np.array(rows).tobytes()).hexdigest()
                if "" not in values and mark not in seen:
                    seen.add(mark)
                    yield dict(zip(names, values, strict=True)), np.array(rows)


def _range(
    differences: Column, sizes: Column, groups: np.ndarray, seed: int
) -> tuple[float, float]:
    """Confidence interval of the mean difference, or the range over few groups."""
    _, codes = np.unique(groups, return_inverse=True)
    sums, counts = np.bincount(codes, differences * sizes), np.bincount(codes, sizes)
    if len(sums) < FEWEST_GROUPS:
        means = sums / counts
        return float(means.min()), float(means.max())
    drawn = np.random.default_rng(seed).integers(0, len(sums), (DRAWS, len(sums)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.percentile(means, (TAIL_PERCENT, 100.0 - TAIL_PERCENT))
    return float(low), float(high)


def graded(
    measured: Column, predicted: Column, low: Column, high: Column, grades: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Grade -> share of all answers, coverage (both percent) and median ratio of its intervals.

    Args:
        measured: shape (n,), positive.
        predicted: shape (n,); NaN where nothing was answered.
        low: lower ends, shape (n,); NaN for none.
        high: upper ends, shape (n,).
        grades: grade of each of the n answers, empty for none.
    """
    known, given = np.isfinite(measured) & np.isfinite(predicted), np.asarray(grades)
    found: dict[str, dict[str, float]] = {}
    for grade in sorted(set(given[known].tolist()) - {""}):
        own: Mask = known & (given == grade)
        found[grade] = {"share": 100.0 * float(own.sum() / known.sum())}
        ranged = own & np.isfinite(low) & np.isfinite(high)
        if ranged.any():
            inside = (low[ranged] <= measured[ranged]) & (measured[ranged] <= high[ranged])
            found[grade]["coverage_90"] = 100.0 * float(inside.mean())
        positive = ranged & (low > 0.0)
        if positive.any():
            ratio = float(np.median(high[positive] / low[positive]))
            found[grade]["median_interval_ratio"] = ratio
    return found


FEWEST = 3
"""Fewest alternatives of a group that is scored."""
WITHIN = 0.02
"""Relative excess over the best alternative up to which a choice counts as good."""


@dataclass(frozen=True)
class Alternatives:
    """Groups of rows, from each of which one row is to be chosen.

    Attributes:
        groups: shape (n,); rows with the same label are alternatives to each other.
        rivals: name of a simple rule -> shape (n,); the rule chooses the row with the least value.
    """

    groups: Text[np.ndarray, " n"]
    rivals: Mapping[str, Float64[np.ndarray, " n"]] = field(default_factory=dict)

    def take(self, rows: Bool[np.ndarray, " n"]) -> "Alternatives":
        """The rows where the mask is True."""
        rivals = {name: column[rows] for name, column in self.rivals.items()}
        return Alternatives(self.groups[rows], rivals)


def choice_scores(
    measured: Float64[np.ndarray, " n"],
    predicted: Float64[np.ndarray, " n"],
    alternatives: Alternatives,
) -> dict[str, float | int | dict[str, float] | None]:
    """Scores of choosing the least predicted value, over groups of at least `FEWEST` alternatives.

    Args:
        measured: shape (n,).
        predicted: shape (n,); not finite where there is no prediction.
        alternatives: groups of the n rows, and rules to compare with.

    Returns:
        `choices`: number of groups; `chosen_within_2pct`: percent of the groups in which the
        measured value of the choice exceeds that of the best by at most 2 %; `chosen_excess`: mean
        relative excess over the best, percent; `chosen_by_rule`: rule -> its `chosen_within_2pct`.
    """
    excess = _excess(measured, predicted, alternatives.groups)
    rules = {
        name: _share(_excess(measured, column, alternatives.groups))
        for name, column in alternatives.rivals.items()
    }
    return {
        "choices": len(excess),
        "chosen_within_2pct": _share(excess) if len(excess) else None,
        "chosen_excess": 100.0 * float(excess.mean()) if len(excess) else None,
        "chosen_by_rule": rules if len(excess) else {},
    }


def _excess(
    measured: Float64[np.ndarray, " n"],
    predicted: Float64[np.ndarray, " n"],
    groups: Text[np.ndarray, " n"],
) -> Float64[np.ndarray, " groups"]:
    """Relative excess of each group's choice over its best alternative, shape (groups,)."""
    known = np.isfinite(measured) & np.isfinite(predicted)
    excess = []
    for group in np.unique(groups[known]):
        rows = np.flatnonzero(known & (groups == group))
        if len(rows) >= FEWEST:
            chosen = rows[np.argmin(predicted[rows])]
            excess.append(measured[chosen] / measured[rows].min() - 1.0)
    return np.array(excess)


def _share(excess: Float64[np.ndarray, " groups"]) -> float:
    return 100.0 * float(np.mean(excess <= WITHIN * (1.0 + 1e-9)))


_WITHIN = 10.0 * (1.0 + 1e-9)


@dataclass(frozen=True, slots=True)
class Score:
    """Scores of predictions against measured values.

    Attributes:
        n: number of rows that are scored: those with a measured value and a prediction.
        unanswered: number of measured rows without a prediction; they enter no score.
        mape: mean absolute percentage error, percent of the measured value.
        median_ape: median absolute percentage error, percent.
        within_10pct: share of predictions with a relative error of at most 10 %, percent.
        spearman: rank correlation, -1 to 1; None for fewer than two rows or a constant column.
        coverage_90: coverage of the prediction intervals, percent, nominally 90; None without
            intervals.
        mean_interval_ratio: mean of high / low, 1 for an interval of no width; None without
            intervals, or where a lower end is not positive.
        median_interval_ratio: median of the same.
        r2: coefficient of determination, at most 1; None where the measured column is constant.
        smape: mean of 2 |predicted - measured| / (|predicted| + |measured|), percent, 0 to 200;
            it also applies to counts of zero.

    `mape`, `median_ape` and `within_10pct` are None where a measured value is not positive (such as
    a utilisation of zero).
    """

    n: int
    unanswered: int
    mape: float | None
    median_ape: float | None
    within_10pct: float | None
    spearman: float | None
    coverage_90: float | None
    mean_interval_ratio: float | None
    median_interval_ratio: float | None
    r2: float | None
    smape: float | None

    @classmethod
    def of(
        cls,
        measured: ArrayLike,
        predicted: ArrayLike,
        low: ArrayLike | None = None,
        high: ArrayLike | None = None,
    ) -> "Score":
        """Score n predictions.

        Args:
            measured: shape (n,); not finite where nothing was measured (the row is left out).
            predicted: shape (n,), same unit; not finite where there is no prediction.
            low: lower ends of 90 % prediction intervals, shape (n,), given together with `high`;
                not finite where there is no interval.
            high: upper ends, shape (n,).

        Raises:
            ValueError: columns differ in length, or only one bound is given.
        """
        truth, answer = _columns(measured, predicted)
        if (low is None) != (high is None):
            raise ValueError("an interval needs both ends: give low and high, or neither")
        known = np.isfinite(truth)
        scored = known & np.isfinite(answer)
        coverage = ratio = middle = None
        if low is not None and high is not None:
            _, below, above = _columns(measured, low, high)
            coverage, ratio, middle = _intervals(truth[scored], below[scored], above[scored])
        errors = absolute_percentage_errors(truth[scored], answer[scored])
        applies = errors if np.isfinite(errors).all() else errors[:0]
        return cls(
            n=int(scored.sum()),
            unanswered=int((known & ~scored).sum()),
            mape=_mean(applies),
            median_ape=percentile(applies, 50.0),
            within_10pct=_errors_share(applies <= _WITHIN),
            spearman=spearman(truth[scored], answer[scored]),
            coverage_90=coverage,
            mean_interval_ratio=ratio,
            median_interval_ratio=middle,
            r2=r2(truth[scored], answer[scored]),
            smape=smape(truth[scored], answer[scored]),
        )

    def to_json(self) -> dict[str, float | int | None]:
        """Field name -> value, ready for `json.dumps(..., allow_nan=False)`."""
        return asdict(self)


def score(
    measured: ArrayLike,
    predicted: ArrayLike,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
) -> dict[str, float | int | None]:
    """`Score.of(...)` as a dictionary, as in the rows of `forerun evaluate --json`.

    Raises:
        ValueError: columns differ in length, or only one bound is given.
    """
    return Score.of(measured, predicted, low, high).to_json()


def capacity_scores(
    measured: ArrayLike, predicted: ArrayLike, high: ArrayLike, bin_width: float
) -> dict[str, float | None]:
    """Scores of predictions of a capacity that must suffice, such as memory.

    Args:
        measured: shape (n,).
        predicted: shape (n,).
        high: upper ends of central 90 % prediction intervals, shape (n,), which 95 % of the
            measured values should not exceed; NaN where there is none.
        bin_width: width of the bins, the first of which begins at zero.

    Returns:
        `bin_accuracy`: share of predictions in the bin of the measured value; `under_predicted`:
        share of predictions below the measured value; `below_high`: share of measured values up to
        `high`; `over_allocation`: mean of high / measured - 1; all in percent.

    Raises:
        ValueError: columns differ in length, or `bin_width` is not positive.
    """
    if not bin_width > 0.0:
        raise ValueError(f"a bin's width must be positive, not {bin_width}")
    truth, answer, above = _columns(measured, predicted, high)
    known = np.isfinite(truth) & np.isfinite(answer)
    truth, answer, above = truth[known], answer[known], above[known]
    bounded = np.isfinite(above)
    return {
        "bin_accuracy": _errors_share(truth // bin_width == answer // bin_width),
        "under_predicted": _errors_share(answer < truth),
        "below_high": _errors_share(truth[bounded] <= above[bounded]),
        "over_allocation": _mean(100.0 * (above[bounded] / truth[bounded] - 1.0)),
    }


def absolute_percentage_errors(
    measured: ArrayLike, predicted: ArrayLike
) -> Float64[np.ndarray, " n"]:
    """100 |predicted - measured| / measured, shape (n,); NaN where measured is not positive.

    Raises:
        ValueError: the columns differ in length.
    """
    truth, answer = _columns(measured, predicted)
    with np.errstate(all="ignore"):
        errors: Float64[np.ndarray, " n"] = 100.0 * np.abs(answer - truth) / truth
    return np.where(truth > 0.0, errors, np.nan)


def percentile(values: ArrayLike, percent: float) -> float | None:
    """Percentile with linear interpolation between ranks; None if `values` is empty.

    Raises:
        ValueError: `percent` is outside 0 to 100.
    """
    column = np.asarray(values, dtype=np.float64)
    if not 0.0 <= percent <= 100.0:
        raise ValueError(f"a percentile lies between 0 and 100, not at {percent}")
    with np.errstate(over="ignore", invalid="ignore"):  # there is nothing between two infinities
        return _number(float(np.percentile(column, percent))) if len(column) else None


def spearman(one: ArrayLike, other: ArrayLike) -> float | None:
    """Spearman's rank correlation; tied values have their mean rank.

    Returns:
        -1 to 1, or None for fewer than two rows or a column that is constant.

    Raises:
        ValueError: the columns differ in length.
    """
    from scipy.stats import spearmanr

    columns = _columns(one, other)
    if any(_is_constant(column) for column in columns):
        return None
    return float(spearmanr(*columns).statistic)


def r2(measured: ArrayLike, predicted: ArrayLike) -> float | None:
    """Coefficient of determination; None for fewer than two rows or a constant column.

    Raises:
        ValueError: the columns differ in length.
    """
    from sklearn.metrics import r2_score

    truth, answer = _columns(measured, predicted)
    if _is_constant(truth):
        return None
    with np.errstate(all="ignore"):
        return _number(float(r2_score(truth, answer, force_finite=False)))


def smape(measured: ArrayLike, predicted: ArrayLike) -> float | None:
    """Symmetric mean absolute percentage error, 0 to 200, None if empty; 0 for a pair of zeros.

    Raises:
        ValueError: the columns differ in length.
    """
    truth, answer = _columns(measured, predicted)
    with np.errstate(all="ignore"):
        errors: Float64[np.ndarray, " n"] = (
            200.0 * np.abs(answer - truth) / (np.abs(answer) + np.abs(truth))
        )
    return _mean(np.where(truth == answer, 0.0, errors))


def mean_and_standard_error(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Mean over seeds and its standard error s / sqrt(n), with the sample standard deviation s.

    Args:
        values: one score for each seed; None where it is not defined.

    Returns:
        The mean, None when no seed has a score, and its standard error, None for fewer than two.
    """
    column = np.array([v for v in values if v is not None], dtype=np.float64)
    if len(column) < 2:
        return _mean(column), None
    return _mean(column), _number(float(column.std(ddof=1) / np.sqrt(len(column))))


def _columns(*values: ArrayLike) -> list[Float64[np.ndarray, " n"]]:
    columns = [np.asarray(column, dtype=np.float64) for column in values]
    if any(c.ndim != 1 or len(c) != len(columns[0]) for c in columns):
        raise ValueError(f"columns must be of one length, not {[c.shape for c in columns]}")
    return columns


def _intervals(
    truth: Float64[np.ndarray, " n"],
    low: Float64[np.ndarray, " n"],
    high: Float64[np.ndarray, " n"],
) -> tuple[float | None, float | None, float | None]:
    """Coverage in percent, and mean and median of high / low."""
    given = np.isfinite(low) & np.isfinite(high)
    truth, low, high = truth[given], low[given], high[given]
    coverage = _errors_share((low <= truth) & (truth <= high))
    if not (low > 0.0).all():
        return coverage, None, None
    with np.errstate(over="ignore"):
        return coverage, _mean(high / low), percentile(high / low, 50.0)


def _is_constant(values: Float64[np.ndarray, " n"]) -> bool:
    """Whether there are not two different values."""
    return len(values) < 2 or bool((values == values[0]).all())


def _errors_share(hits: Bool[np.ndarray, " n"]) -> float | None:
    return 100.0 * float(hits.mean()) if len(hits) else None


def _mean(values: Float64[np.ndarray, " n"]) -> float | None:
    with np.errstate(over="ignore", invalid="ignore"):  # infinities of both signs have no mean
        return _number(float(values.mean())) if len(values) else None


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None
