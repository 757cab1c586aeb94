"""Predictive densities that weight experts, and moments of their mixture.

The density is Student's t with few degrees of freedom, so that the weights are robust to single
outliers.
"""

from math import lgamma

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
FREEDOM = 4.0
"""Degrees of freedom of the predictive density."""


def log_density(errors: Matrix, variances: Matrix) -> Matrix:
    """Log density of errors under Student's t distribution.

    Args:
        errors: of any shape.
        variances: squared scales of the distribution, of the same shape.
    """
    norm = lgamma((FREEDOM + 1) / 2) - lgamma(FREEDOM / 2) - 0.5 * np.log(FREEDOM * np.pi)
    log_scale = 0.5 * np.log(variances)
    tails = (FREEDOM + 1) / 2 * np.log1p(errors**2 / (FREEDOM * variances))
    return np.asarray(norm - log_scale - tails)


def combine(weights: Column, means: Matrix, variances: Matrix) -> tuple[Column, Column]:
    """Mean and variance of a mixture of e experts.

    Args:
        weights: (e,) weights that add up to 1.
        means: (e, n) means of the experts.
        variances: (e, n) variances of the experts.

    Returns:
        Mean, (n,); variance including the disagreement of the experts, (n,).
    """
    mean = weights @ means
    return mean, weights @ (variances + (means - mean) ** 2)
