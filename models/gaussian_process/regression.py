"""Gaussian processes for a handful of measurements: sums of simple kernels, weighted from the rows.

The covariance is a sum of fixed kernels over standardised columns; their weights and the noise are
the mode of the marginal likelihood times log-normal priors (Rasmussen and Williams 2006, chapter
5). A prior learned on other hardware thus enters as a prior on weights, or as a kernel over what
other hardware measured. Answers for a row left out are in closed form (ibid., equation 5.12).
Twenty rows take some milliseconds; a thousand some seconds.
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
"""Mean and deviation of the log of the noise's variance: 5 % on a log scale, within a factor."""
_JITTER = 1e-8


@dataclass(frozen=True, slots=True)
class Covariance:
    """One term of a covariance, of order 1 on columns with mean 0 and deviation 1.

    Attributes:
        shape: `constant`; `linear` (products); `radial` (squared exponential).
        columns: first column and the one after the last that it looks at; all when None.
        length: distance, in deviations a column, over which answers change.
        prior: mean and deviation of the log of its weight.
    """

    shape: Shape
    columns: tuple[int, int] | None = None
    length: float = 1.0
    prior: tuple[float, float] = (-3.0, 1.5)

    def between(self, one: Matrix, other: Matrix) -> Matrix:
        """Covariances of n and m rows before weighting, shape (n, m)."""
        one, other = self._own(one), self._own(other)
        if self.shape == "constant":
            return np.ones((len(one), len(other)))
        if self.shape == "linear":
            return np.asarray(one @ other.T / one.shape[1])
        # Minus half the squared distances, in place: a search spends its time here.
        scale = one.shape[1] * self.length**2
        found = one @ (other.T / scale)
        found -= (0.5 / scale) * (one**2).sum(axis=1)[:, None]
        found -= (0.5 / scale) * (other**2).sum(axis=1)
        np.minimum(found, 0.0, out=found)
        return np.asarray(np.exp(found, out=found))

    def applied(self, one: Matrix, other: Matrix, coefficients: Matrix) -> Matrix:
        """`between(one, other) @ coefficients`, without the large product where none is needed."""
        if self.shape == "linear":
            one, other = self._own(one), self._own(other)
            return np.asarray(one @ (other.T @ coefficients) / one.shape[1])
        return np.asarray(self.between(one, other) @ coefficients)

    def diagonal(self, rows: Matrix) -> Vector:
        """Variance of n rows before weighting, shape (n,)."""
        if self.shape == "linear":
            own = self._own(rows)
            return np.asarray((own**2).sum(axis=1) / own.shape[1])
        return np.ones(len(rows))

    def _own(self, rows: Matrix) -> Matrix:
        return rows if self.columns is None else rows[:, self.columns[0] : self.columns[1]]


@dataclass(frozen=True, slots=True)
class Answer:
    """Normal answers, one a row.

    Attributes:
        mean: shape (n,).
        variance: of a new measurement, its noise included, shape (n,).
    """

    mean: Vector
    variance: Vector

    def log_density(self, truth: Vector) -> Vector:
        """Log of the density at what was measured, shape (n,)."""
        error = (truth - self.mean) ** 2 / self.variance
        return np.asarray(-0.5 * (np.log(2.0 * np.pi * self.variance) + error))


@dataclass(frozen=True)
class GaussianProcessRegression:
    """A sum of kernels, fitted to few rows; frozen.

    Attributes:
        kernels: terms of the covariance, each with the prior of its weight.
        noise_prior: mean and deviation of the log of the noise's variance.
        weights: of the kernels; empty before `fit`.
        noise: variance of one measurement.
        rows: measured places, shape (n, columns).
        centre: mean of what was measured, added to every answer.
        posterior: given what was measured less `centre`.
        values: what was measured, shape (n,).
    """

    kernels: tuple[Covariance, ...]
    noise_prior: tuple[float, float] = NOISE_PRIOR
    weights: Vector = field(default_factory=lambda: np.zeros(0))
    noise: float = 0.0
    rows: Matrix = field(default_factory=lambda: np.zeros((0, 0)))
    centre: float = 0.0
    posterior: Posterior | None = None
    values: Vector = field(default_factory=lambda: np.zeros(0))

    def fit(self, rows: Matrix, measured: Vector, known_noise: Vector | float = 0.0) -> Self:
        """Weights at their mode, then the posterior.

        Args:
            rows: standardised columns, shape (n, columns).
            measured: n values, such as log milliseconds.
            known_noise: variance that each value is known to have beside the noise that is found,
                such as that of rounding.
        """
        centre = float(measured.mean())
        grams = np.array([kernel.between(rows, rows) for kernel in self.kernels])
        floor = np.broadcast_to(np.asarray(known_noise, dtype=np.float64), (len(rows),))
        found = self._mode(grams, measured - centre, floor)
        return self._settled(rows, measured, found[:-1], float(found[-1]), floor)

    def with_weights(
        self,
        rows: Matrix,
        measured: Vector,
        weights: Vector,
        noise: float,
        known_noise: Vector | float = 0.0,
    ) -> Self:
        """The posterior under weights and noise that are given."""
        floor = np.broadcast_to(np.asarray(known_noise, dtype=np.float64), (len(rows),))
        return self._settled(rows, measured, weights, noise, floor)

    def predict(self, rows: Matrix) -> Answer:
        """Mean and variance of a new measurement at each of m rows."""
        assert self.posterior is not None
        cross = self._between(rows)
        prior = np.zeros(len(rows))
        for weight, kernel in zip(self.weights, self.kernels, strict=True):
            prior += weight * kernel.diagonal(rows)
        variance = self.posterior.variance(cross, prior) + self.noise
        return Answer(self.centre + self.posterior.mean(cross), variance)

    def leave_one_out(self) -> Answer:
        """What the others say about each measured row, with the weights as they are."""
        assert self.posterior is not None
        mean = self.values - self.posterior.left_out_error
        return Answer(mean, self.posterior.left_out_variance)

    def _between(self, rows: Matrix) -> Matrix:
        total = np.zeros((len(rows), len(self.rows)))
        for weight, kernel in zip(self.weights, self.kernels, strict=True):
            total += weight * kernel.between(rows, self.rows)
        return total

    def _settled(
        self, rows: Matrix, measured: Vector, weights: Vector, noise: float, floor: Vector
    ) -> Self:
        centre = float(measured.mean())
        covariance = np.zeros((len(rows), len(rows)))
        for weight, kernel in zip(weights, self.kernels, strict=True):
            covariance += weight * kernel.between(rows, rows)
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
        """Weights and noise, at the mode of the posterior density of their logarithms."""
        from scipy.optimize import minimize

        priors = np.array([*(k.prior for k in self.kernels), self.noise_prior])
        start, spread = priors[:, 0], priors[:, 1]
        found = minimize(
            _loss,
            start,
            args=(grams, centred, floor, start, spread),
            jac=True,
            method="L-BFGS-B",
            bounds=[(m - 4.0 * s, m + 4.0 * s) for m, s in priors],
            options={"maxiter": 60, "ftol": 1e-6},
        )
        return np.asarray(np.exp(found.x))


def _loss(
    logs: Vector,
    grams: NDArray[np.float64],
    centred: Vector,
    floor: Vector,
    start: Vector,
    spread: Vector,
) -> tuple[float, Vector]:
    """Negative log posterior of log weights and log noise, with its gradient."""
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
    gap = (logs - start) / spread
    loss = 0.5 * centred @ solved + np.log(np.diag(factor)).sum() + 0.5 * gap @ gap
    slack = inverse - np.outer(solved, solved)
    gradient = np.empty_like(logs)
    gradient[:-1] = 0.5 * scales[:-1] * np.einsum("kij,ij->k", grams, slack)
    gradient[-1] = 0.5 * scales[-1] * np.trace(slack)
    return float(loss), gradient + gap / spread


def standardised(rows: Matrix, like: Matrix | None = None) -> Matrix:
    """Columns with mean 0 and deviation 1 over `like` (the rows themselves when None)."""
    from_rows = rows if like is None else like
    deviation = from_rows.std(axis=0)
    return np.asarray((rows - from_rows.mean(axis=0)) / np.where(deviation > 1e-12, deviation, 1.0))


def covariances_over(
    columns: tuple[int, int], lengths: Sequence[float], level: float = -3.0
) -> tuple[Covariance, ...]:
    """A linear kernel and a radial one at each length, over the same columns."""
    linear = Covariance("linear", columns, prior=(level, 1.5))
    bent = tuple(Covariance("radial", columns, length, (level, 1.5)) for length in lengths)
    return (linear, *bent)
