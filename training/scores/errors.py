"""Scores of predictions: pure functions of measured and predicted values.

Relative errors, coverage and other shares are in percent. A score that is not defined for the given
rows is None, never NaN.

Scores of the choice that a predictor makes: the alternative with the least predicted value.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from forerun.data.shapes import Bool, Float64, Text

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
