"""Scores of predictions: pure functions of measured and predicted values.

Relative errors, coverage and other shares are in percent. A score that is undefined for the given
rows is None, never NaN.

Two predictors are compared on the same rows, slice by slice. A slice fixes the values of some
properties (device, family, precision, phase). The bootstrap resamples whole groups of rows, such as
all rows of a workload. A slice with fewer than `FEWEST_GROUPS` groups is too small for a bootstrap:
it counts as worse if the error grew in every group, and by more than the variation between seeds.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field

from forerun.data.columns import rows_by
from forerun.data.shapes import Bool, Float64

Column = Float64[np.ndarray, " n"]
Mask = Bool[np.ndarray, " n"]

FEWEST_GROUPS: Final = 5
"""Fewest groups of a slice for a bootstrap confidence interval."""
SEED_NOISE: Final = 0.05
"""Assumed noise of a score, relative to its value, where it was not measured. Two standard
deviations of the difference of two fits, over three seeds of the four tasks of `torch_op_energy`,
are 0.5, 4, 4 and 10 % of the error.
"""
DRAWS: Final = 2_000
"""Number of bootstrap resamples."""
TAIL_PERCENT: Final = 2.5


@dataclass(frozen=True)
class PairedErrors:
    """Errors of two predictors on the same n rows, or their means over n sets of rows.

    Attributes:
        before, after: absolute percentage errors, shape (n,).
        sizes: number of rows that each error is the mean of, shape (n,).
        groups: group of each row, for the bootstrap.
        facts: property -> value for each row; "" for none.
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
    """The errors of two predictors in one slice.

    Attributes:
        metric: name of the metric.
        slice: property -> value, for the properties that the slice fixes.
        rows, groups: number of rows and of groups.
        before, after: mean absolute percentage errors.
        low, high: range of `after` - `before` in percentage points: a 95 % confidence interval, or
            the smallest and the largest mean of a group if there are few groups.
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
        """Metric and property values, as one line."""
        return " ".join((self.metric, *self.slice.values()))

    @property
    def is_worse(self) -> bool:
        """Whether the error grew by more than the noise."""
        grown = self.after - self.before
        return self.low > 0.0 and (
            self.groups >= FEWEST_GROUPS or grown > SEED_NOISE * abs(self.before)
        )


def compared(metric: str, errors: PairedErrors, seed: int = 0) -> list[SliceChange]:
    """The errors of two predictors in each slice, wider slices first.

    Args:
        metric: name of the metric.
        errors: errors of both predictors on the same rows.
        seed: seed of the bootstrap.
    """
    groups = np.asarray(errors.groups)
    slices_found = []
    for fixed, chosen in slices_of(errors.facts, len(groups)):
        sizes = errors.sizes[chosen]
        before, after = errors.before[chosen], errors.after[chosen]
        low, high = _range(after - before, sizes, groups[chosen], seed)
        change = SliceChange(
            metric=metric,
            slice=fixed,
            rows=int(sizes.sum()),
            groups=len(np.unique(groups[chosen])),
            before=float(np.average(before, weights=sizes)),
            after=float(np.average(after, weights=sizes)),
            low=low,
            high=high,
        )
        slices_found.append(change)
    return slices_found


def slices_of(
    facts: Mapping[str, Sequence[str]], count: int
) -> Iterator[tuple[dict[str, str], np.ndarray]]:
    """Properties and row positions of each slice; slices with fewer properties come first.

    Rows without a value are ignored, and a slice with the same rows as an earlier one is skipped.

    Args:
        facts: property -> value for each row; "" for none.
        count: number of rows.
    """
    seen: set[str] = set()
    for size in range(len(facts) + 1):
        for names in combinations(facts, size):
            labels = list(zip(*(facts[name] for name in names), strict=True)) or [()] * count
            for values, rows in rows_by(labels).items():
                mark = hashlib.sha256(rows.tobytes()).hexdigest()
                if "" not in values and mark not in seen:
                    seen.add(mark)
                    yield dict(zip(names, values, strict=True)), rows


def _range(
    differences: Column, sizes: Column, groups: np.ndarray, seed: int
) -> tuple[float, float]:
    """Confidence interval of the mean difference, or the range of group means for few groups."""
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
        predicted: shape (n,); NaN where there is no prediction.
        low: lower ends, shape (n,); NaN for none.
        high: upper ends, shape (n,).
        grades: grades of the n answers, "" for none.
    """
    known, given = np.isfinite(measured) & np.isfinite(predicted), np.asarray(grades)
    found: dict[str, dict[str, float]] = {}
    for grade in sorted(set(given[known].tolist()) - {""}):
        of_grade: Mask = known & (given == grade)
        found[grade] = {"share": 100.0 * float(of_grade.sum() / known.sum())}
        ranged = of_grade & np.isfinite(low) & np.isfinite(high)
        if ranged.any():
            inside = (low[ranged] <= measured[ranged]) & (measured[ranged] <= high[ranged])
            found[grade]["coverage_90"] = 100.0 * float(inside.mean())
        positive = ranged & (low > 0.0)
        if positive.any():
            ratio = float(np.median(high[positive] / low[positive]))
            found[grade]["median_interval_ratio"] = ratio
    return found


_WITHIN = 10.0 * (1.0 + 1e-9)


def score(
    measured: ArrayLike,
    predicted: ArrayLike,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
) -> dict[str, float | int | None]:
    """Scores of n predictions against measured values, as in `forerun evaluate --json`.

    Args:
        measured: shape (n,); rows with a value that is not finite are ignored.
        predicted: shape (n,), same unit; not finite where there is no prediction.
        low: lower ends of 90 % prediction intervals, shape (n,), given together with `high`;
            not finite where there is no interval.
        high: upper ends, shape (n,).

    Returns:
        n: number of scored rows: those with a measured value and a prediction.
        unanswered: number of measured rows without a prediction; no other score includes them.
        mape: mean absolute percentage error, percent of the measured value.
        median_ape: median absolute percentage error, percent.
        within_10pct: share of predictions with a relative error of at most 10 %, percent.
        spearman: rank correlation, -1 to 1; None for fewer than two rows or a constant column.
        coverage_90: coverage of the prediction intervals, percent, nominally 90; None without
            intervals.
        mean_interval_ratio: mean of high / low, 1 for an interval of zero width; None without
            intervals, or if a lower end is not positive.
        median_interval_ratio: median of high / low, None under the same conditions.
        r2: coefficient of determination, at most 1; None if the measured column is constant.
        smape: mean of 2 |predicted - measured| / (|predicted| + |measured|), percent, 0 to 200;
            also defined for counts of zero.

        `mape`, `median_ape` and `within_10pct` are None if a measured value is not positive
        (such as a utilisation of zero).

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
    return {
        "n": int(scored.sum()),
        "unanswered": int((known & ~scored).sum()),
        "mape": mean(applies),
        "median_ape": median(applies),
        "within_10pct": share_of(applies <= _WITHIN),
        "spearman": spearman(truth[scored], answer[scored]),
        "coverage_90": coverage,
        "mean_interval_ratio": ratio,
        "median_interval_ratio": middle,
        "r2": r2(truth[scored], answer[scored]),
        "smape": smape(truth[scored], answer[scored]),
    }


def absolute_percentage_errors(measured: ArrayLike, predicted: ArrayLike) -> Column:
    """100 |predicted - measured| / measured, shape (n,); NaN where measured is not positive.

    Raises:
        ValueError: the columns differ in length.
    """
    truth, answer = _columns(measured, predicted)
    with np.errstate(all="ignore"):
        errors: Column = 100.0 * np.abs(answer - truth) / truth
    return np.where(truth > 0.0, errors, np.nan)


def spearman(first: ArrayLike, second: ArrayLike) -> float | None:
    """Spearman's rank correlation; ties get their mean rank.

    Returns:
        -1 to 1, or None for fewer than two rows or a constant column.

    Raises:
        ValueError: the columns differ in length.
    """
    from scipy.stats import spearmanr

    columns = _columns(first, second)
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
    """Symmetric mean absolute percentage error, 0 to 200; a pair of zeros counts 0. None if empty.

    Raises:
        ValueError: the columns differ in length.
    """
    truth, answer = _columns(measured, predicted)
    with np.errstate(all="ignore"):
        errors: Column = 200.0 * np.abs(answer - truth) / (np.abs(answer) + np.abs(truth))
    return mean(np.where(truth == answer, 0.0, errors))


def mean_and_standard_error(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Mean over seeds and its standard error s / sqrt(n), with the sample standard deviation s.

    Args:
        values: one score for each seed; None where it is not defined.

    Returns:
        The mean, None when no seed has a score, and its standard error, None for fewer than two.
    """
    column = np.array([v for v in values if v is not None], dtype=np.float64)
    if len(column) < 2:
        return mean(column), None
    return mean(column), _number(float(column.std(ddof=1) / np.sqrt(len(column))))


def _columns(*values: ArrayLike) -> list[Column]:
    columns = [np.asarray(column, dtype=np.float64) for column in values]
    if any(c.ndim != 1 or len(c) != len(columns[0]) for c in columns):
        raise ValueError(f"columns must be of one length, not {[c.shape for c in columns]}")
    return columns


def _intervals(
    truth: Column,
    low: Column,
    high: Column,
) -> tuple[float | None, float | None, float | None]:
    """Coverage in percent, and mean and median of high / low."""
    given = np.isfinite(low) & np.isfinite(high)
    truth, low, high = truth[given], low[given], high[given]
    coverage = share_of((low <= truth) & (truth <= high))
    if not (low > 0.0).all():
        return coverage, None, None
    with np.errstate(over="ignore"):
        return coverage, mean(high / low), median(high / low)


def _is_constant(values: Column) -> bool:
    """Whether all values are equal, or there are fewer than two."""
    return len(values) < 2 or bool((values == values[0]).all())


def share_of(hits: Mask) -> float | None:
    """Percentage of n flags that are True; None if n is 0."""
    return 100.0 * float(hits.mean()) if len(hits) else None


def mean(values: Column) -> float | None:
    """Mean of n values; None if n is 0 or the mean is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):  # infinities of both signs have no mean
        return _number(float(values.mean())) if len(values) else None


def median(values: Column) -> float | None:
    """Median of n values; None if n is 0 or the median is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):  # there is nothing between two infinities
        return _number(float(np.percentile(values, 50.0))) if len(values) else None


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None
