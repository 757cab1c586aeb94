"""Quantiles of held-out residuals, with corrections for a finite number of rows or groups.

`conformal_quantile` is the order statistic of split conformal prediction (Lei et al. 2018,
"Distribution-free predictive inference for regression", section 2.2), and for rows in groups that
of hierarchical conformal prediction (Lee, Barber and Willett 2023, arXiv 2306.06342).
`student_quantile` widens a normal interval whose variance was estimated from few groups.
"""

import numpy as np

from forerun.data.shapes import Float64, Int, Shaped, Text

_ROUNDING = 1e-9
"""Subtracted from levels, so that 9 of 10 equal weights reach the level 0.9."""


def conformal_quantile(
    scores: Float64[np.ndarray, " n"], level: float, groups: Shaped[np.ndarray, " n"] | None = None
) -> float:
    """The k-th smallest of n scores, k = ceil((n + 1) * level); the largest one where k > n.

    One more exchangeable score is at most this one with probability k / (n + 1), which is at least
    the level where k <= n. Of rows in groups, a row of one more exchangeable group is; the
    correction then counts groups, and each has the same weight.

    Args:
        scores: (n,) scores, at least one, without NaN.
        level: nominal probability.
        groups: (n,) labels of rows whose scores are correlated; by default each row is a group.
    """
    weights = np.ones(len(scores)) if groups is None else group_weights(groups)
    return weighted_quantile(scores, weights, level * (1.0 + 1.0 / weights.sum()))


def weighted_quantile(
    values: Float64[np.ndarray, " n"], weights: Float64[np.ndarray, " n"], level: float
) -> float:
    """The least value at which the cumulative weight reaches a share of the total weight.

    Args:
        values: (n,) values, at least one, without NaN.
        weights: (n,) weights, not negative.
        level: share of the total weight; the largest value from 1 on.
    """
    level = min(level - _ROUNDING, 1.0)
    return float(np.quantile(values, level, weights=weights, method="inverted_cdf"))


def group_weights(
    groups: Text[np.ndarray, " n"] | Int[np.ndarray, " n"],
) -> Float64[np.ndarray, " n"]:
    """Weights of n rows with which every group has a total weight of 1, shape (n,)."""
    _, group, counts = np.unique(groups, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / counts[group])


def student_quantile(
    freedom: float | Float64[np.ndarray, " n"], coverage: float
) -> Float64[np.ndarray, " *n"]:
    """Half-width, in standard deviations, of an interval with a variance of so many degrees.

    Args:
        freedom: degrees of freedom of the estimated variance, a number or (n,).
        coverage: nominal coverage of the two-sided interval.
    """
    from scipy.special import stdtrit

    return np.asarray(stdtrit(freedom, 0.5 + coverage / 2.0), dtype=np.float64)
