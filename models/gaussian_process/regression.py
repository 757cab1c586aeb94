"""Gaussian process regression from a handful of measurements.

The covariance is a weighted sum of fixed terms over standardised columns. Their weights and the
noise variance are maximum a posteriori estimates: the mode of the marginal likelihood times
log-normal priors (Rasmussen and Williams, "Gaussian Processes for Machine Learning", MIT Press
2006, chapter 5). Knowledge from other hardware enters as a prior of the weights, or as a term over
columns measured on that hardware. A fit takes some milliseconds with twenty rows and some seconds
with a thousand.

Covariance functions are those of Rasmussen and Williams, chapter 4, whose sums and products are
covariances as well (section 4.2.4). They replace scikit-learn's kernels, which take a second to
import and support neither columns nor keys; tests compare the two. The posterior is that of
sections 2.2 and 5.4.2, with leave-one-out predictions in closed form (equation 5.12).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import lgamma
from typing import Final, Literal, Self

import numpy as np

from forerun.data.shapes import Bool, Float64, Shaped

Shape = Literal["constant", "linear", "radial"]


def distances(
    one: Float64[np.ndarray, "n d"], other: Float64[np.ndarray, "m d"]
) -> Float64[np.ndarray, "n m"]:
    """Euclidean distances of rows (n, d) and (m, d), shape (n, m)."""
    squares = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1)[None, :]
    return np.asarray(np.sqrt(np.maximum(squares - 2.0 * one @ other.T, 0.0)))


def squared_exponential(
    one: Float64[np.ndarray, "n d"], other: Float64[np.ndarray, "m d"], length: float = 1.0
) -> Float64[np.ndarray, "n m"]:
    """exp(-distance**2 / (2 length**2)) of rows (n, d) and (m, d), shape (n, m)."""
    # Minus half the squared distances, in place: searches spend most of their time here.
    scale = length**2
    exponent = one @ (other.T / scale)
    exponent -= (0.5 / scale) * (one**2).sum(axis=1)[:, None]
    exponent -= (0.5 / scale) * (other**2).sum(axis=1)
    np.minimum(exponent, 0.0, out=exponent)
    return np.asarray(np.exp(exponent, out=exponent))


def matern(
    distance: Float64[np.ndarray, " *shape"], smoothness: float
) -> Float64[np.ndarray, " *shape"]:
    """Matern correlation at distances in units of the length scale, elementwise.

    Args:
        distance: distances of any shape.
        smoothness: 0.5, which is the exponential covariance, 1.5 or 2.5.
    """
    scaled = np.sqrt(2.0 * smoothness) * distance
    factor = 1.0 + scaled if smoothness > 1.0 else 1.0
    if smoothness > 2.0:
        factor = factor + scaled**2 / 3.0
    return np.asarray(factor * np.exp(-scaled))


def same(one: Shaped[np.ndarray, " n"], other: Shaped[np.ndarray, " m"]) -> Bool[np.ndarray, "n m"]:
    """Whether n and m codes or texts are equal, shape (n, m)."""
    return np.asarray(one[:, None] == other[None, :])


@dataclass(frozen=True, slots=True)
class Covariance:
    """One term of a weighted sum, of order 1 on columns with mean 0 and standard deviation 1.

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

    def between(
        self, one: Float64[np.ndarray, "n d"], other: Float64[np.ndarray, "m d"]
    ) -> Float64[np.ndarray, "n m"]:
        """Covariances between n and m rows for weight 1, shape (n, m)."""
        one, other = self._own(one), self._own(other)
        if self.shape == "constant":
            return np.ones((len(one), len(other)))
        if self.shape == "linear":
            return np.asarray(one @ other.T / one.shape[1])
        return squared_exponential(one, other, self.length * one.shape[1] ** 0.5)

    def times(
        self,
        other: Float64[np.ndarray, "m d"],
        coefficients: Float64[np.ndarray, "m targets"],
    ) -> Callable[[Float64[np.ndarray, "n d"]], Float64[np.ndarray, "n targets"]]:
        """The function one -> `between(one, other) @ coefficients`, for repeated calls.

        The linear term avoids the (n, m) matrix: it keeps (d, targets) numbers.
        """
        if self.shape != "linear":
            return lambda one: np.asarray(self.between(one, other) @ coefficients)
        slopes = self._own(other).T @ coefficients
        return lambda one: np.asarray(self._own(one) @ slopes / len(slopes))

    def diagonal(self, rows: Float64[np.ndarray, "n d"]) -> Float64[np.ndarray, " n"]:
        """Prior variance of n rows for weight 1, shape (n,)."""
        if self.shape == "linear":
            columns = self._own(rows)
            return np.asarray((columns**2).sum(axis=1) / columns.shape[1])
        return np.ones(len(rows))

    def _own(self, rows: Float64[np.ndarray, "n d"]) -> Float64[np.ndarray, "n own"]:
        return rows if self.columns is None else rows[:, self.columns[0] : self.columns[1]]


def weighted_sum(
    weights: Float64[np.ndarray, " terms"],
    covariances: Sequence[Covariance],
    one: Float64[np.ndarray, "n d"],
    other: Float64[np.ndarray, "m d"],
) -> Float64[np.ndarray, "n m"]:
    """Sum of the terms between n and m rows, each times its weight, shape (n, m)."""
    total = np.zeros((len(one), len(other)))
    for weight, covariance in zip(weights, covariances, strict=True):
        total += weight * covariance.between(one, other)
    return total


@dataclass(frozen=True)
class Posterior:
    """Posterior of a process with prior mean zero, given k noisy values.

    Attributes:
        values: (k,).
        inverse: (k, k) inverse of the covariance of the values, including their noise.
        weights: (k,) `inverse @ values`.
        log_likelihood: log marginal likelihood of the values.
    """

    values: Float64[np.ndarray, " k"]
    inverse: Float64[np.ndarray, "k k"]
    weights: Float64[np.ndarray, " k"]
    log_likelihood: float

    @classmethod
    def of(
        cls,
        covariance: Float64[np.ndarray, "k k"],
        noise: Float64[np.ndarray, " k"] | float,
        values: Float64[np.ndarray, " k"],
    ) -> Self:
        """The posterior given k noisy values.

        Args:
            covariance: (k, k) prior covariance, without noise.
            noise: variance of the noise, one value or (k,).
            values: (k,).

        Raises:
            ValueError: the covariance is not positive definite.
        """
        from scipy.linalg.lapack import dtrtri

        size = len(values)
        noisy = covariance + np.eye(size) * noise
        # A numerically singular covariance gets the smallest jitter that makes it positive
        # definite.
        for jitter in (0.0, 1e-10, 1e-8, 1e-6, 1e-4):
            try:
                root = np.linalg.cholesky(noisy + jitter * np.trace(noisy) / size * np.eye(size))
                break
            except np.linalg.LinAlgError:
                continue
        else:
            raise ValueError("the covariance is not positive")
        factor, _ = dtrtri(root, lower=1)
        inverse = factor.T @ factor
        weights = inverse @ values
        # The factor's diagonal holds the square roots of the inverse's determinant.
        log_determinant = np.log(np.diag(factor)).sum() - 0.5 * size * np.log(2.0 * np.pi)
        return cls(values, inverse, weights, float(log_determinant - 0.5 * values @ weights))

    @property
    def left_out_error(self) -> Float64[np.ndarray, " k"]:
        """Leave-one-out residuals: each value minus its mean given the others, shape (k,)."""
        return np.asarray(self.weights * self.left_out_variance)

    @property
    def left_out_variance(self) -> Float64[np.ndarray, " k"]:
        """Leave-one-out variances, including the noise, shape (k,)."""
        return np.asarray(1.0 / np.diag(self.inverse))

    def mean(self, cross: Float64[np.ndarray, "n k"]) -> Float64[np.ndarray, " n"]:
        """Mean at n inputs, from their covariance (n, k) with the k values; shape (n,)."""
        return np.asarray(cross @ self.weights)

    def variance(
        self, cross: Float64[np.ndarray, "n k"], prior: Float64[np.ndarray, " n"]
    ) -> Float64[np.ndarray, " n"]:
        """Variance at n inputs, without noise and never negative; shape (n,).

        Args:
            cross: (n, k) covariance of the inputs with the k values.
            prior: (n,) prior variance of the inputs.
        """
        explained = ((cross @ self.inverse) * cross).sum(axis=1)
        return np.asarray(np.maximum(prior - explained, 0.0))

    def without_group(
        self, held_out: Bool[np.ndarray, " k"]
    ) -> tuple[Float64[np.ndarray, " h"], Float64[np.ndarray, "h h"]]:
        """Mean and covariance of held-out values, noise included, given only the remaining ones.

        Args:
            held_out: (k,) mask of h rows; their values are not read.

        Returns:
            (h,) means; (h, h) covariance.
        """
        means, covariances = without_group(self.inverse[None], held_out, self.values[None])
        return means[0], covariances[0]


def without_group(
    inverses: Float64[np.ndarray, "e k k"],
    held_out: Bool[np.ndarray, " k"],
    values: Float64[np.ndarray, "e k"],
) -> tuple[Float64[np.ndarray, "e h"], Float64[np.ndarray, "e h h"]]:
    """Mean and covariance of held-out values under e processes, given only the remaining ones.

    Equation 5.12 of Rasmussen and Williams for a block of rows: with the inverse covariance A
    partitioned into held-out (h) and remaining (r) rows, the covariance is inv(A_hh) and the
    mean -inv(A_hh) A_hr v_r.

    Args:
        inverses: (e, k, k) inverse of each process's covariance of the values with their noise.
        held_out: (k,) mask of h rows; their values are not read.
        values: (e, k) values of each process.

    Returns:
        (e, h) means; (e, h, h) covariances, noise included.
    """
    rows = inverses[:, held_out]
    covariances = np.linalg.inv(rows[:, :, held_out])
    pulls = rows[:, :, ~held_out] @ values[:, ~held_out, None]
    return -(covariances @ pulls)[..., 0], covariances


def mean_weights(
    covariance: Float64[np.ndarray, "k k"],
    noise: Float64[np.ndarray, " k"] | float,
    values: Float64[np.ndarray, " k *targets"],
) -> Float64[np.ndarray, " k *targets"]:
    """Weights of the posterior mean only, feasible for thousands of rows since no inverse is
    needed.

    Args:
        covariance: (k, k) prior covariance, without noise.
        noise: variance of the noise, one value or (k,).
        values: (k,), or (k, m) for m targets.

    Returns:
        Of the shape of `values`.
    """
    from scipy.linalg import cho_factor, cho_solve

    noisy = covariance.copy()
    noisy[np.diag_indices_from(noisy)] += noise
    return np.asarray(cho_solve(cho_factor(noisy, lower=True, overwrite_a=True), values))


FREEDOM = 4.0
"""Degrees of freedom of the predictive density."""
PRIOR_ROWS: Final = 1.0
"""Pseudo-observations of the Dirichlet prior, which gives all experts equal weight."""
_STEPS = 200


def log_density(
    errors: Float64[np.ndarray, " *shape"], variances: Float64[np.ndarray, " *shape"]
) -> Float64[np.ndarray, " *shape"]:
    """Log density of errors under Student's t distribution.

    Its few degrees of freedom limit the influence of single outliers.

    Args:
        errors: of any shape.
        variances: squared scales of the distribution, of the same shape.
    """
    norm = lgamma((FREEDOM + 1) / 2) - lgamma(FREEDOM / 2) - 0.5 * np.log(FREEDOM * np.pi)
    log_scale = 0.5 * np.log(variances)
    tails = (FREEDOM + 1) / 2 * np.log1p(errors**2 / (FREEDOM * variances))
    return np.asarray(norm - log_scale - tails)


def posterior_weights(log_likelihoods: Float64[np.ndarray, " e"]) -> Float64[np.ndarray, " e"]:
    """Weights proportional to the likelihoods of e experts, which add up to 1; (e,)."""
    weights = np.exp(log_likelihoods - log_likelihoods.max())
    return np.asarray(weights / weights.sum())


def stacking_weights(
    log_densities: Float64[np.ndarray, "e n"], prior_rows: float = PRIOR_ROWS
) -> Float64[np.ndarray, " e"]:
    """Weights of e experts that add up to 1, shape (e,), by expectation maximisation.

    Yao, Vehtari, Simpson and Gelman, "Using Stacking to Average Bayesian Predictive Distributions"
    (Bayesian Analysis 2018).

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
                the estimated noise variance.
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

    def joint(
        self, rows: Float64[np.ndarray, "m d"]
    ) -> tuple[Float64[np.ndarray, " m"], Float64[np.ndarray, "m m"]]:
        """Mean and covariance of the function at m inputs, excluding measurement noise."""
        assert self.posterior is not None
        cross = weighted_sum(self.weights, self.covariances, rows, self.rows)
        prior = weighted_sum(self.weights, self.covariances, rows, rows)
        covariance = prior - cross @ self.posterior.inverse @ cross.T
        return self.centre + self.posterior.mean(cross), np.asarray(covariance)

    def leave_one_out(self) -> Answer:
        """Prediction of each training row from all others, with the weights of the full fit."""
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
    # The likelihood without its constant, because the search stops at a relative change of the
    # loss.
    likelihood = posterior.log_likelihood + 0.5 * len(centred) * np.log(2.0 * np.pi)
    return 0.5 * float(gap @ gap) - likelihood, 0.5 * scales * slopes + gap / deviation


def standardised(
    rows: Float64[np.ndarray, "n d"], like: Float64[np.ndarray, "m d"] | None = None
) -> Float64[np.ndarray, "n d"]:
    """Columns scaled to mean 0 and standard deviation 1 over `like` (over `rows` if None)."""
    mean, deviation = scale_of(rows if like is None else like)
    return np.asarray((rows - mean) / deviation)


def scale_of(
    rows: Float64[np.ndarray, "n d"],
) -> tuple[Float64[np.ndarray, " d"], Float64[np.ndarray, " d"]]:
    """Mean and standard deviation of each column, shapes (d,); 1 for constant columns."""
    deviation = rows.std(axis=0)
    return np.asarray(rows.mean(axis=0)), np.where(deviation > 1e-12, deviation, 1.0)


def covariances_over(columns: tuple[int, int], lengths: Sequence[float]) -> tuple[Covariance, ...]:
    """A linear term, and a radial term for each length scale, over the same columns.

    Args:
        columns: half-open range of columns.
        lengths: length scales of the radial terms.
    """
    prior = (-3.0, 1.5)
    radial = tuple(Covariance("radial", columns, length, prior) for length in lengths)
    return (Covariance("linear", columns, prior=prior), *radial)
