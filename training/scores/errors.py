"""How good answers are: pure functions from measured and predicted columns to scores.

Shares and errors are in percent, so that a table reads as people say it. A score that does not
apply to the rows at hand is None, never NaN.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Column = NDArray[np.float64]

_WITHIN = 10.0 * (1.0 + 1e-9)


@dataclass(frozen=True, slots=True)
class Score:
    """Scores of n answers against what was measured.

    Attributes:
        n: rows judged: measured, and answered.
        unanswered: measured rows that the predictor gave no answer for; they are in no score.
        mape: mean absolute percentage error, percent of the measured value.
        median_ape: median absolute percentage error, percent.
        within_10pct: share of answers at most 10 % off, percent.
        spearman: rank correlation, -1 to 1; None for fewer than two rows or a constant column.
        coverage_90: share of measured values inside their interval, percent; intervals are meant
            to hold 90. None without intervals.
        mean_interval_ratio: mean of high / low, 1 for an interval of no width; None without
            intervals, or where a lower end is not positive.
        r2: share of the measured variance that the answers explain, 1 at best; None where the
            measured column is constant.
        smape: mean of 2 |predicted - measured| / (|predicted| + |measured|), percent, 0 to 200;
            it also applies to counts of zero.

    Percentage errors are None where a measured value is not positive (a utilisation of zero).
    """

    n: int
    unanswered: int
    mape: float | None
    median_ape: float | None
    within_10pct: float | None
    spearman: float | None
    coverage_90: float | None
    mean_interval_ratio: float | None
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
        """The scores of these columns.

        Args:
            measured: n values; not finite where nothing was measured (the row is left out).
            predicted: n values; not finite where the predictor gave no answer.
            low: n lower ends, given together with `high`; not finite where there is no interval.
            high: n upper ends.

        Raises:
            ValueError: columns differ in length, or only one bound is given.
        """
        truth, answer = _columns(measured, predicted)
        if (low is None) != (high is None):
            raise ValueError("an interval needs both ends: give low and high, or neither")
        known = np.isfinite(truth)
        judged = known & np.isfinite(answer)
        coverage = ratio = None
        if low is not None and high is not None:
            _, below, above = _columns(measured, low, high)
            coverage, ratio = _intervals(truth[judged], below[judged], above[judged])
        errors = absolute_percentage_errors(truth[judged], answer[judged])
        applies = errors if np.isfinite(errors).all() else errors[:0]
        return cls(
            n=int(judged.sum()),
            unanswered=int((known & ~judged).sum()),
            mape=_mean(applies),
            median_ape=percentile(applies, 50.0),
            within_10pct=_share(applies <= _WITHIN),
            spearman=spearman(truth[judged], answer[judged]),
            coverage_90=coverage,
            mean_interval_ratio=ratio,
            r2=r2(truth[judged], answer[judged]),
            smape=smape(truth[judged], answer[judged]),
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
    """`Score.of(...)` as a plain mapping, the row of `forerun evaluate --json`.

    Raises:
        ValueError: columns differ in length, or only one bound is given.
    """
    return Score.of(measured, predicted, low, high).to_json()


def capacity_scores(
    measured: ArrayLike, predicted: ArrayLike, high: ArrayLike, bin_width: float
) -> dict[str, float | None]:
    """Scores of answers that decide whether something fits: memory.

    Args:
        measured: n values.
        predicted: n values.
        high: n upper ends of 90 % intervals, so that 95 % should stay below; NaN where there is
            none.
        bin_width: of bins from zero on.

    Returns:
        `bin_accuracy`: answers in the right bin; `under_predicted`: answers below what was
        measured; `below_high`: measured values that `high` holds; `over_allocation`: mean of
        high / measured - 1; all in percent.

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
        "bin_accuracy": _share(truth // bin_width == answer // bin_width),
        "under_predicted": _share(answer < truth),
        "below_high": _share(truth[bounded] <= above[bounded]),
        "over_allocation": _mean(100.0 * (above[bounded] / truth[bounded] - 1.0)),
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


def percentile(values: ArrayLike, percent: float) -> float | None:
    """The value that `percent` of the values do not exceed (linear between ranks); None if empty.

    Raises:
        ValueError: `percent` is outside 0 to 100.
    """
    column = np.asarray(values, dtype=np.float64)
    if not 0.0 <= percent <= 100.0:
        raise ValueError(f"a percentile lies between 0 and 100, not at {percent}")
    return _number(float(np.percentile(column, percent))) if len(column) else None


def spearman(one: ArrayLike, other: ArrayLike) -> float | None:
    """Spearman's rank correlation, equal values sharing their mean rank.

    Returns:
        -1 to 1, or None for fewer than two rows or a column that is constant.

    Raises:
        ValueError: the columns differ in length.
    """
    columns = _columns(one, other)
    middle = (len(columns[0]) + 1) / 2.0
    first, second = (_ranks(column) - middle for column in columns)
    size = float(np.sqrt((first @ first) * (second @ second)))
    return float(np.clip(first @ second / size, -1.0, 1.0)) if size > 0.0 else None


def r2(measured: ArrayLike, predicted: ArrayLike) -> float | None:
    """Coefficient of determination; None for fewer than two rows or a constant column.

    Raises:
        ValueError: the columns differ in length.
    """
    truth, answer = _columns(measured, predicted)
    if len(truth) < 2 or (truth == truth[0]).all():
        return None
    with np.errstate(all="ignore"):
        total, missed = ((truth - truth.mean()) ** 2).sum(), ((truth - answer) ** 2).sum()
        return _number(float(1.0 - missed / total))


def smape(measured: ArrayLike, predicted: ArrayLike) -> float | None:
    """Symmetric mean absolute percentage error, 0 to 200; two zeros agree. None if empty.

    Raises:
        ValueError: the columns differ in length.
    """
    truth, answer = _columns(measured, predicted)
    with np.errstate(all="ignore"):
        errors: Column = 200.0 * np.abs(answer - truth) / (np.abs(answer) + np.abs(truth))
    return _mean(np.where(truth == answer, 0.0, errors))


def mean_and_standard_error(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Mean over seeds, and its standard error s / sqrt(n) with the sample deviation s.

    Args:
        values: one score a seed; None where it did not apply.

    Returns:
        None for the mean when no seed has a score, None for the error when fewer than two have.
    """
    column = np.array([v for v in values if v is not None], dtype=np.float64)
    if len(column) < 2:
        return _mean(column), None
    return _mean(column), _number(float(column.std(ddof=1) / np.sqrt(len(column))))


def _columns(*values: ArrayLike) -> list[Column]:
    columns = [np.asarray(column, dtype=np.float64) for column in values]
    if any(c.ndim != 1 or len(c) != len(columns[0]) for c in columns):
        raise ValueError(f"columns must be of one length, not {[c.shape for c in columns]}")
    return columns


def _intervals(truth: Column, low: Column, high: Column) -> tuple[float | None, float | None]:
    given = np.isfinite(low) & np.isfinite(high)
    truth, low, high = truth[given], low[given], high[given]
    coverage = _share((low <= truth) & (truth <= high))
    if not (low > 0.0).all():
        return coverage, None
    with np.errstate(over="ignore"):
        return coverage, _mean(high / low)


def _ranks(values: Column) -> Column:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean_rank: Column = last - (counts - 1) / 2.0
    return mean_rank[place]


def _share(hits: NDArray[np.bool_]) -> float | None:
    return 100.0 * float(hits.mean()) if len(hits) else None


def _mean(values: Column) -> float | None:
    with np.errstate(over="ignore"):
        return _number(float(values.mean())) if len(values) else None


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None
