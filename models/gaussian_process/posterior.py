"""Posterior and leave-one-out predictions of a Gaussian process with a given covariance.

Rasmussen and Williams, "Gaussian Processes for Machine Learning" (MIT Press 2006), sections 2.2
and 5.4.2.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Posterior:
    """Posterior of a process with prior mean zero, given k noisy values.

    Attributes:
        inverse: (k, k) inverse of the covariance of the values, including their noise.
        weights: (k,) `inverse @ values`.
        left_out_error: (k,) leave-one-out residuals: each value minus its mean given the others.
        left_out_variance: (k,) leave-one-out variances, including the noise.
    """

    inverse: Matrix
    weights: Column
    left_out_error: Column
    left_out_variance: Column

    @classmethod
    def of(cls, covariance: Matrix, noise: Column | float, values: Column) -> Self:
        """The posterior given k noisy values.

        Args:
            covariance: (k, k) prior covariance, without noise.
            noise: variance of the noise, one value or (k,).
            values: (k,).

        Raises:
            ValueError: the covariance is not positive definite.
        """
        size = len(values)
        noisy = covariance + np.eye(size) * noise
        # A covariance that is singular to rounding gets the least jitter that makes it positive.
        for jitter in (0.0, 1e-10, 1e-8, 1e-6, 1e-4):
            try:
                factor = np.linalg.inv(
                    np.linalg.cholesky(noisy + jitter * np.trace(noisy) / size * np.eye(size))
                )
                break
            except np.linalg.LinAlgError:
                continue
        else:
            raise ValueError("the covariance is not positive")
        inverse = factor.T @ factor
        weights = inverse @ values
        precision = np.diag(inverse)
        return cls(inverse, weights, weights / precision, 1.0 / precision)

    def mean(self, cross: Matrix) -> Column:
        """Mean at n inputs, from their covariance (n, k) with the k values; shape (n,)."""
        return np.asarray(cross @ self.weights)

    def variance(self, cross: Matrix, prior: Column) -> Column:
        """Variance at n inputs, without noise and never negative; shape (n,).

        Args:
            cross: (n, k) covariance of the inputs with the k values.
            prior: (n,) prior variance of the inputs.
        """
        explained = np.einsum("ij,jk,ik->i", cross, self.inverse, cross, optimize=True)
        return np.asarray(np.maximum(prior - explained, 0.0))


def without_group(
    inverse: Matrix, values: Column, held_out: NDArray[np.bool_]
) -> tuple[Column, Matrix]:
    """Mean and covariance of held-out values, noise included, given only the remaining ones.

    Equation 5.12 of Rasmussen and Williams for a block of rows: with the inverse covariance A
    partitioned into held-out (h) and remaining (r) rows, the covariance is inv(A_hh) and the mean
    -inv(A_hh) A_hr v_r. The held-out entries of `values` are not read.

    Args:
        inverse: (k, k) inverse of the covariance of all values, noise included.
        values: (k,), of mean zero.
        held_out: (k,) mask of h rows.

    Returns:
        (h,) means; (h, h) covariance.
    """
    covariance = np.linalg.inv(inverse[np.ix_(held_out, held_out)])
    mean = -covariance @ (inverse[np.ix_(held_out, ~held_out)] @ values[~held_out])
    return np.asarray(mean), np.asarray(covariance)


def matern(one: Matrix, other: Matrix) -> Matrix:
    """Matern 3/2 correlation of rows (n, d) and (m, d) for length scale 1, shape (n, m)."""
    distance = np.sqrt(3.0) * distances(one, other)
    return np.asarray((1.0 + distance) * np.exp(-distance))


def distances(one: Matrix, other: Matrix) -> Matrix:
    """Euclidean distances of rows (n, d) and (m, d), shape (n, m)."""
    squares = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1)[None, :]
    return np.asarray(np.sqrt(np.maximum(squares - 2.0 * one @ other.T, 0.0)))
