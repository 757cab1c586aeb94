"""Experts weighted by how well each foresees the few rows when they are left out one by one.

The predictive density is Student's with few degrees of freedom, so that one strange row does not
decide; a prior says how much each expert is trusted before anything was measured.
"""

from collections.abc import Sequence
from math import lgamma

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
FREEDOM = 4.0


def log_density(errors: Matrix, variances: Matrix) -> Matrix:
    """Log of Student's density of errors with these scales squared."""
    norm = lgamma((FREEDOM + 1) / 2) - lgamma(FREEDOM / 2) - 0.5 * np.log(FREEDOM * np.pi)
    spread = 0.5 * np.log(variances)
    tails = (FREEDOM + 1) / 2 * np.log1p(errors**2 / (FREEDOM * variances))
    return np.asarray(norm - spread - tails)


def weigh(errors: Matrix, variances: Matrix, prior: Sequence[float]) -> Column:
    """Weights of e experts from k rows left out one by one, shape (e,), adding up to 1.

    Args:
        errors: (e, k) left-out errors.
        variances: (e, k) variances that the experts claim for them.
        prior: e positive weights before any row.
    """
    score = log_density(errors, variances).sum(axis=1) + np.log(prior)
    weights = np.exp(score - score.max())
    return np.asarray(weights / weights.sum())


def combine(weights: Column, means: Matrix, variances: Matrix) -> tuple[Column, Column]:
    """Mean and variance of a mixture.

    Args:
        weights: (e,).
        means: (e, n) of each expert.
        variances: (e, n).

    Returns:
        (n,) mean; (n,) variance, the experts' disagreement included.
    """
    mean = weights @ means
    return mean, weights @ (variances + (means - mean) ** 2)
