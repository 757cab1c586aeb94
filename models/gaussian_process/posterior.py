"""Gaussian processes with given covariances: posterior and leave-one-out answers in closed form.

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
    """A process of mean zero, given k values.

    Attributes:
        inverse: (k, k) inverse of the values' covariance, noise included.
        weights: (k,) `inverse` times the values.
        left_out_error: (k,) each value minus its mean given the others.
        left_out_variance: (k,) variance of that, noise included.
    """

    inverse: Matrix
    weights: Column
    left_out_error: Column
    left_out_variance: Column

    @classmethod
    def of(cls, covariance: Matrix, noise: Column | float, values: Column) -> Self:
        """The process given noisy values.

        Args:
            covariance: (k, k), without noise.
            noise: variance of the noise of each value, or of all.
            values: (k,).
        """
        size = len(values)
        noisy = covariance + np.eye(size) * noise
        # A covariance that is singular to rounding gets the least jitter that mends it.
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
        """Mean at n places, from their covariance (n, k) with the k values."""
        return np.asarray(cross @ self.weights)

    def variance(self, cross: Matrix, prior: Column) -> Column:
        """Variance at n places without noise, from their prior variance (n,); never negative."""
        explained = np.einsum("ij,jk,ik->i", cross, self.inverse, cross, optimize=True)
        return np.asarray(np.maximum(prior - explained, 0.0))


def without_group(
    inverse: Matrix, values: Column, held_out: NDArray[np.bool_]
) -> tuple[Column, Matrix]:
    """Mean and covariance of some values, noise included, given only the others.

    Equation 5.12 of Rasmussen and Williams for a block of rows: with the inverse covariance A
    partitioned into held-out (h) and remaining (r) rows, the covariance is inv(A_hh) and the mean
    -inv(A_hh) A_hr v_r. The held-out entries of `values` are not looked at.

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
    """Matern 3/2 correlation of rows (n, d) and (m, d) at length 1, shape (n, m)."""
    distance = np.sqrt(3.0) * distances(one, other)
    return np.asarray((1.0 + distance) * np.exp(-distance))


def distances(one: Matrix, other: Matrix) -> Matrix:
    """Euclidean distances of rows (n, d) and (m, d), shape (n, m)."""
    squares = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1)[None, :]
    return np.asarray(np.sqrt(np.maximum(squares - 2.0 * one @ other.T, 0.0)))
