"""Covariance functions of Rasmussen and Williams (2006), chapter 4, on rows of columns.

Sums and products of them are covariances as well (ibid., section 4.2.4). They are functions of our
own and not scikit-learn's kernels, which take a second to import and know neither columns nor keys;
tests compare the two.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

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
    """Matern correlation at distances in units of the length scale, of their shape.

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
        """The function one -> `between(one, other) @ coefficients`, for many calls.

        The linear term avoids the (n, m) matrix: it keeps (d, targets) numbers.
        """
        if self.shape != "linear":
            return lambda one: np.asarray(self.between(one, other) @ coefficients)
        slopes = self._own(other).T @ coefficients
        return lambda one: np.asarray(self._own(one) @ slopes / len(slopes))

    def diagonal(self, rows: Float64[np.ndarray, "n d"]) -> Float64[np.ndarray, " n"]:
        """Prior variance of n rows for weight 1, shape (n,)."""
        if self.shape == "linear":
            own = self._own(rows)
            return np.asarray((own**2).sum(axis=1) / own.shape[1])
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
