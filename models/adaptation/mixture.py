"""Experts weighted by how well each foresees the few rows when they are left out one by one.

The predictive density is Student's with few degrees of freedom, so that one strange row does not
decide; a prior says how much each expert is trusted before anything was measured.
"""

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
