"""Gaussian process regression from a handful of measurements.

The covariance is a weighted sum of fixed terms over standardised columns. Their weights and the
variance of the noise are maximum a posteriori estimates: the mode of the marginal likelihood times
log-normal priors (Rasmussen and Williams 2006, chapter 5). Knowledge from other hardware enters as
a prior of the weights, or as a term over columns that were measured on that hardware. Leave-one-out
predictions are in closed form (ibid., equation 5.12). A fit takes some milliseconds with twenty
rows and some seconds with a thousand.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

import numpy as np

from forerun.data.shapes import Float64
from forerun.models.gaussian_process.covariances import Covariance, weighted_sum
from forerun.models.gaussian_process.posterior import Posterior

NOISE_PRIOR: Final = (-7.5, 2.0)
"""Prior mean and standard deviation of the log of the noise variance; the mean is a standard
deviation of exp(-7.5 / 2) = 2.3 %, and one standard deviation is a factor of e of that."""
_JITTER = 1e-8


@dataclass(frozen=True, slots=True)
class Answer:
    """Normal predictive distributions of n rows.

    Attributes:
        mean: shape (n,).
        variance: variance of a new measurement, including its noise, shape (n,).
    """

    mean: Float64[np.ndarray, " n"]
    variance: Float64[np.ndarray, " n"]

    def log_density(self, truth: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
        """Log density at the measured values, shape (n,)."""
        error = (truth - self.mean) ** 2 / self.variance
        return np.asarray(-0.5 * (np.log(2.0 * np.pi * self.variance) + error))


@dataclass(frozen=True)
class GaussianProcessRegression:
    """A Gaussian process whose covariance is a weighted sum of terms; frozen.

    Attributes:
        covariances: terms of the covariance, each with the prior of its weight.
        noise_prior: mean and standard deviation of the log of the noise variance.
        weights: weight of each term; empty before `fit`.
        noise: variance of the noise of one measurement.
        rows: training inputs, shape (n, columns).
        centre: mean of the training values, added to every prediction.
        posterior: posterior given the training values minus `centre`.
    """

    covariances: tuple[Covariance, ...]
    noise_prior: tuple[float, float] = NOISE_PRIOR
    weights: Float64[np.ndarray, " terms"] = field(default_factory=lambda: np.zeros(0))
    noise: float = 0.0
    rows: Float64[np.ndarray, "n d"] = field(default_factory=lambda: np.zeros((0, 0)))
    centre: float = 0.0
    posterior: Posterior | None = None

    def fit(
        self,
        rows: Float64[np.ndarray, "n d"],
        measured: Float64[np.ndarray, " n"],
        known_noise: Float64[np.ndarray, " n"] | float = 0.0,
    ) -> Self:
        """Maximum a posteriori estimates of weights and noise, then the posterior.

        Args:
            rows: standardised columns, shape (n, columns).
            measured: n values, such as log milliseconds.
            known_noise: known variance of each value, such as that of rounding, which is added to
                the variance of the noise that is estimated.
        """
        grams = np.array([term.between(rows, rows) for term in self.covariances])
        mode = self._mode(grams, measured - measured.mean(), known_noise)
        return self.with_weights(rows, measured, mode[:-1], float(mode[-1]), known_noise)

    def with_weights(
        self,
        rows: Float64[np.ndarray, "n d"],
        measured: Float64[np.ndarray, " n"],
        weights: Float64[np.ndarray, " terms"],
        noise: float,
        known_noise: Float64[np.ndarray, " n"] | float = 0.0,
    ) -> Self:
        """The posterior for given weights and a given variance of the noise."""
        centre = float(measured.mean())
        covariance = weighted_sum(weights, self.covariances, rows, rows)
        posterior = Posterior.of(covariance, known_noise + noise + _JITTER, measured - centre)
        return replace(
            self, weights=weights, noise=noise, rows=rows, centre=centre, posterior=posterior
        )

    def predict(self, rows: Float64[np.ndarray, "m d"]) -> Answer:
        """Mean and variance of a new measurement at each of m inputs."""
        assert self.posterior is not None
        cross = weighted_sum(self.weights, self.covariances, rows, self.rows)
        diagonals = np.array([term.diagonal(rows) for term in self.covariances])
        variance = self.posterior.variance(cross, self.weights @ diagonals) + self.noise
        return Answer(self.centre + self.posterior.mean(cross), variance)

    def leave_one_out(self) -> Answer:
        """Prediction of each training row from all others, for the weights of the full fit."""
        assert self.posterior is not None
        mean = self.centre + self.posterior.values - self.posterior.left_out_error
        return Answer(mean, self.posterior.left_out_variance)

    def _mode(
        self,
        grams: Float64[np.ndarray, "terms n n"],
        centred: Float64[np.ndarray, " n"],
        floor: Float64[np.ndarray, " n"] | float,
    ) -> Float64[np.ndarray, " terms+1"]:
        """Weights and noise variance at the mode of the posterior density of their logarithms."""
        from scipy.optimize import minimize

        priors = np.array([*(k.prior for k in self.covariances), self.noise_prior])
        start, deviation = priors[:, 0], priors[:, 1]
        solution = minimize(
            _loss,
            start,
            args=(grams, centred, floor, start, deviation),
            jac=True,
            method="L-BFGS-B",
            bounds=[(m - 4.0 * s, m + 4.0 * s) for m, s in priors],
            options={"maxiter": 60, "ftol": 1e-6},
        )
        return np.asarray(np.exp(solution.x))


def _loss(
    logs: Float64[np.ndarray, " p"],
    grams: Float64[np.ndarray, "p-1 n n"],
    centred: Float64[np.ndarray, " n"],
    floor: Float64[np.ndarray, " n"] | float,
    start: Float64[np.ndarray, " p"],
    deviation: Float64[np.ndarray, " p"],
) -> tuple[float, Float64[np.ndarray, " p"]]:
    """Negative log posterior of the log weights and the log noise, and its gradient."""
    scales = np.exp(logs)
    covariance = np.tensordot(scales[:-1], grams, axes=1)
    posterior = Posterior.of(covariance, scales[-1] + floor + _JITTER, centred)
    gap = (logs - start) / deviation
    # Rasmussen and Williams 2006, equation 5.9.
    inner = posterior.inverse - np.outer(posterior.weights, posterior.weights)
    slopes = [*np.einsum("kij,ij->k", grams, inner), np.trace(inner)]
    # Without the constant of the likelihood: the search ends by the relative change of the loss.
    likelihood = posterior.log_likelihood + 0.5 * len(centred) * np.log(2.0 * np.pi)
    return 0.5 * float(gap @ gap) - likelihood, 0.5 * scales * slopes + gap / deviation


def standardised(
    rows: Float64[np.ndarray, "n d"], like: Float64[np.ndarray, "m d"] | None = None
) -> Float64[np.ndarray, "n d"]:
    """Columns scaled to mean 0 and standard deviation 1 over `like` (over `rows` when None)."""
    mean, deviation = scale_of(rows if like is None else like)
    return np.asarray((rows - mean) / deviation)


def scale_of(
    rows: Float64[np.ndarray, "n d"],
) -> tuple[Float64[np.ndarray, " d"], Float64[np.ndarray, " d"]]:
    """Mean and standard deviation of each column, shapes (d,); 1 for one that is constant."""
    deviation = rows.std(axis=0)
    return np.asarray(rows.mean(axis=0)), np.where(deviation > 1e-12, deviation, 1.0)


def covariances_over(
    columns: tuple[int, int], lengths: Sequence[float], level: float = -3.0
) -> tuple[Covariance, ...]:
    """A linear term, and a radial term for each length scale, over the same columns.

    Args:
        columns: half-open range of columns.
        lengths: length scales of the radial terms.
        level: prior mean of the log of each weight.
    """
    linear = Covariance("linear", columns, prior=(level, 1.5))
    radial = tuple(Covariance("radial", columns, length, (level, 1.5)) for length in lengths)
    return (linear, *radial)
