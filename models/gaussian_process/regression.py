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
from typing import Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from forerun.models.gaussian_process.posterior import Posterior

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Shape = Literal["constant", "linear", "radial"]

NOISE_PRIOR: Final = (-7.5, 2.0)
"""Prior mean and standard deviation of the log of the noise variance; the mean is a standard
deviation of exp(-7.5 / 2) = 2.3 %, and one standard deviation is a factor of e of that."""
_JITTER = 1e-8


@dataclass(frozen=True, slots=True)
class Covariance:
    """One term of a covariance, of order 1 on columns with mean 0 and standard deviation 1.

    Attributes:
        shape: `constant`; `linear` (scalar product); `radial` (squared exponential).
        columns: half-open range (first, after last) of the columns it depends on; None for all.
        length: length scale, in standard deviations per column.
        prior: mean and standard deviation of the log of its weight.
    """

    shape: Shape
    columns: tuple[int, int] | None = None
    length: float = 1.0
    prior: tuple[float, float] = (-3.0, 1.5)

    def between(self, one: Matrix, other: Matrix) -> Matrix:
        """Covariances between n and m rows for weight 1, shape (n, m)."""
        one, other = self._own(one), self._own(other)
        if self.shape == "constant":
            return np.ones((len(one), len(other)))
        if self.shape == "linear":
            return np.asarray(one @ other.T / one.shape[1])
        # Minus half the squared distances, in place: searches spend most of their time here.
        scale = one.shape[1] * self.length**2
        exponent = one @ (other.T / scale)
        exponent -= (0.5 / scale) * (one**2).sum(axis=1)[:, None]
        exponent -= (0.5 / scale) * (other**2).sum(axis=1)
        np.minimum(exponent, 0.0, out=exponent)
        return np.asarray(np.exp(exponent, out=exponent))

    def applied(self, one: Matrix, other: Matrix, coefficients: Matrix) -> Matrix:
        """`between(one, other) @ coefficients`; the linear term avoids the (n, m) matrix."""
        if self.shape == "linear":
            one, other = self._own(one), self._own(other)
            return np.asarray(one @ (other.T @ coefficients) / one.shape[1])
        return np.asarray(self.between(one, other) @ coefficients)

    def diagonal(self, rows: Matrix) -> Vector:
        """Prior variance of n rows for weight 1, shape (n,)."""
        if self.shape == "linear":
            own = self._own(rows)
            return np.asarray((own**2).sum(axis=1) / own.shape[1])
        return np.ones(len(rows))

    def _own(self, rows: Matrix) -> Matrix:
        return rows if self.columns is None else rows[:, self.columns[0] : self.columns[1]]


@dataclass(frozen=True, slots=True)
class Answer:
    """Normal predictive distributions of n rows.

    Attributes:
        mean: shape (n,).
        variance: variance of a new measurement, including its noise, shape (n,).
    """

    mean: Vector
    variance: Vector

    def log_density(self, truth: Vector) -> Vector:
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
        values: training values, shape (n,).
    """

    covariances: tuple[Covariance, ...]
    noise_prior: tuple[float, float] = NOISE_PRIOR
    weights: Vector = field(default_factory=lambda: np.zeros(0))
    noise: float = 0.0
    rows: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    centre: float = 0.0
    posterior: Posterior | None = None
    values: Vector = field(default_factory=lambda: np.zeros(0))

    def fit(self, rows: Matrix, measured: Vector, known_noise: Vector | float = 0.0) -> Self:
        """Maximum a posteriori estimates of weights and noise, then the posterior.

        Args:
            rows: standardised columns, shape (n, columns).
            measured: n values, such as log milliseconds.
            known_noise: known variance of each value, such as that of rounding, which is added to
                the variance of the noise that is estimated.
        """
        centre = float(measured.mean())
        grams = np.array([term.between(rows, rows) for term in self.covariances])
        floor = np.broadcast_to(np.asarray(known_noise, dtype=np.float64), (len(rows),))
        mode = self._mode(grams, measured - centre, floor)
        return self._with_posterior(rows, measured, mode[:-1], float(mode[-1]), floor)

    def with_weights(
        self,
        rows: Matrix,
        measured: Vector,
        weights: Vector,
        noise: float,
        known_noise: Vector | float = 0.0,
    ) -> Self:
        """The posterior for given weights and a given variance of the noise."""
        floor = np.broadcast_to(np.asarray(known_noise, dtype=np.float64), (len(rows),))
        return self._with_posterior(rows, measured, weights, noise, floor)

    def predict(self, rows: Matrix) -> Answer:
        """Mean and variance of a new measurement at each of m inputs."""
        assert self.posterior is not None
        cross = self._between(rows)
        prior = np.zeros(len(rows))
        for weight, term in zip(self.weights, self.covariances, strict=True):
            prior += weight * term.diagonal(rows)
        variance = self.posterior.variance(cross, prior) + self.noise
        return Answer(self.centre + self.posterior.mean(cross), variance)

    def leave_one_out(self) -> Answer:
        """Prediction of each training row from all others, for the weights of the full fit."""
        assert self.posterior is not None
        mean = self.values - self.posterior.left_out_error
        return Answer(mean, self.posterior.left_out_variance)

    def _between(self, rows: Matrix) -> Matrix:
        total = np.zeros((len(rows), len(self.rows)))
        for weight, term in zip(self.weights, self.covariances, strict=True):
            total += weight * term.between(rows, self.rows)
        return total

    def _with_posterior(
        self, rows: Matrix, measured: Vector, weights: Vector, noise: float, floor: Vector
    ) -> Self:
        centre = float(measured.mean())
        covariance = np.zeros((len(rows), len(rows)))
        for weight, term in zip(weights, self.covariances, strict=True):
            covariance += weight * term.between(rows, rows)
        return replace(
            self,
            weights=np.asarray(weights, dtype=np.float64),
            noise=noise,
            rows=rows,
            centre=centre,
            posterior=Posterior.of(covariance, floor + noise + _JITTER, measured - centre),
            values=measured,
        )

    def _mode(self, grams: NDArray[np.float64], centred: Vector, floor: Vector) -> Vector:
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
    logs: Vector,
    grams: NDArray[np.float64],
    centred: Vector,
    floor: Vector,
    start: Vector,
    deviation: Vector,
) -> tuple[float, Vector]:
    """Negative log posterior of the log weights and the log noise, and its gradient."""
    n = len(centred)
    scales = np.exp(logs)
    covariance = np.tensordot(scales[:-1], grams, axes=1)
    covariance[np.diag_indices(n)] += scales[-1] + floor + _JITTER
    try:
        factor = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return 1e10, np.zeros_like(logs)
    inverse = np.linalg.inv(covariance)
    solved = inverse @ centred
    gap = (logs - start) / deviation
    loss = 0.5 * centred @ solved + np.log(np.diag(factor)).sum() + 0.5 * gap @ gap
    inner = inverse - np.outer(solved, solved)
    gradient = np.empty_like(logs)
    gradient[:-1] = 0.5 * scales[:-1] * np.einsum("kij,ij->k", grams, inner)
    gradient[-1] = 0.5 * scales[-1] * np.trace(inner)
    return float(loss), gradient + gap / deviation


def standardised(rows: Matrix, like: Matrix | None = None) -> Matrix:
    """Columns scaled to mean 0 and standard deviation 1 over `like` (over `rows` when None)."""
    from_rows = rows if like is None else like
    deviation = from_rows.std(axis=0)
    return np.asarray((rows - from_rows.mean(axis=0)) / np.where(deviation > 1e-12, deviation, 1.0))


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
