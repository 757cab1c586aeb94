"""Mixtures of processes: weights from marginal or held-out likelihoods, and moments.

Held-out residuals are weighted by Student's t density with few degrees of freedom, so that single
outliers have little influence. Stacking is that of Yao, Vehtari, Simpson and Gelman, "Using
Stacking to Average Bayesian Predictive Distributions" (Bayesian Analysis 2018).
"""

from math import lgamma
from typing import Final

import numpy as np

from forerun.data.shapes import Float64

FREEDOM = 4.0
"""Degrees of freedom of the predictive density."""
PRIOR_ROWS: Final = 1.0
"""Pseudo-observations of the Dirichlet prior, in which all experts have equal weight."""
_STEPS = 200


def log_density(
    errors: Float64[np.ndarray, " *shape"], variances: Float64[np.ndarray, " *shape"]
) -> Float64[np.ndarray, " *shape"]:
    """Log density of errors under Student's t distribution.

    Args:
        errors: of any shape.
        variances: squared scales of the distribution, of the same shape.
    """
    norm = lgamma((FREEDOM + 1) / 2) - lgamma(FREEDOM / 2) - 0.5 * np.log(FREEDOM * np.pi)
    log_scale = 0.5 * np.log(variances)
    tails = (FREEDOM + 1) / 2 * np.log1p(errors**2 / (FREEDOM * variances))
    return np.asarray(norm - log_scale - tails)


def posterior_weights(log_likelihoods: Float64[np.ndarray, " e"]) -> Float64[np.ndarray, " e"]:
    """Weights in proportion to the likelihoods of e experts, which add up to 1; (e,)."""
    weights = np.exp(log_likelihoods - log_likelihoods.max())
    return np.asarray(weights / weights.sum())


def stacking_weights(
    log_densities: Float64[np.ndarray, "e n"], prior_rows: float = PRIOR_ROWS
) -> Float64[np.ndarray, " e"]:
    """Weights of e experts that add up to 1, shape (e,), by expectation maximisation.

    Args:
        log_densities: log density of each expert at each held-out row, shape (e, n).
        prior_rows: pseudo-observations with equal weights.
    """
    experts = len(log_densities)
    density = np.exp(log_densities - log_densities.max(axis=0))
    weights = np.full(experts, 1.0 / experts)
    for _ in range(_STEPS):
        share = weights[:, None] * density
        share /= share.sum(axis=0)
        weights = share.sum(axis=1) + prior_rows / experts
        weights /= weights.sum()
    return weights


def combine(
    weights: Float64[np.ndarray, " e"],
    means: Float64[np.ndarray, "e n"],
    variances: Float64[np.ndarray, "e n"],
) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, " n"]]:
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
