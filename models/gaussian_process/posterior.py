"""Posterior and leave-one-out predictions of a Gaussian process with a given covariance.

Rasmussen and Williams, "Gaussian Processes for Machine Learning" (MIT Press 2006), sections 2.2
and 5.4.2.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from forerun.data.shapes import Bool, Float64


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
        # A covariance that is singular to rounding gets the least jitter that makes it positive.
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
        # The factor has the roots of the inverse's determinant on its diagonal.
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
    """Weights of the posterior mean alone, which thousands of rows have without an inverse.

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
