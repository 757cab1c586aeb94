"""A Gaussian process with a random effect for each model: rows of one model are no new models.

Model names enter the covariance of the training rows as groups alone; a question belongs to no
group, so that its answer does not depend on any name. Rasmussen and Williams 2006, section 2.7 for
the linear part; Laird and Ware 1982 for random effects.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from forerun.models.gaussian_process.posterior import distances

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
DIGITS = 9


@dataclass(frozen=True)
class Spread:
    """Standard deviations of the parts of a value, in log space.

    Attributes:
        smooth: what places near each other share.
        linear: a trend.
        group: what rows of one model share beyond that.
        noise: of one row.
    """

    smooth: float = 0.5
    linear: float = 0.3
    group: float = 0.1
    noise: float = 0.08


@dataclass(frozen=True)
class MixedEffectsProcess:
    """Posterior means of m values at places.

    Attributes:
        places: (n, d) training places, in units of their length scales.
        centre: (d,) their mean.
        level: (m,) medians that the process deviates from.
        weights: (n, m) weights of the training places.
        spread: of the parts.
    """

    places: Matrix
    centre: Column
    level: Column
    weights: Matrix
    spread: Spread

    @classmethod
    def fit(cls, places: Matrix, values: Matrix, groups: NDArray[np.str_], spread: Spread) -> Self:
        """The process given values.

        Args:
            places: (n, d), in units of the length scales.
            values: (n, m), without missing ones.
            groups: n models.
            spread: of the parts.
        """
        places, centre = np.round(places, DIGITS), np.round(places.mean(axis=0), DIGITS)
        level = np.median(values, axis=0)
        shared = _covariance(places, places, centre, spread)
        shared += spread.group**2 * (groups[:, None] == groups[None, :])
        shared += spread.noise**2 * np.eye(len(places))
        weights = np.linalg.solve(shared, values - level)
        return cls(places, centre, level, np.round(weights, DIGITS), spread)

    def predict(self, places: Matrix) -> Matrix:
        """Means, shape (k, m)."""
        cross = _covariance(places, self.places, self.centre, self.spread)
        # One row at a time: sums must not depend on the rows beside it.
        return np.array([self.level + row @ self.weights for row in cross]).reshape(
            len(places), len(self.level)
        )

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists."""
        spread = self.spread
        return {
            "places": self.places.tolist(),
            "centre": self.centre.tolist(),
            "level": self.level.tolist(),
            "weights": self.weights.tolist(),
            "spread": [spread.smooth, spread.linear, spread.group, spread.noise],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The process that `to_json` wrote."""
        places, centre = np.array(content["places"]), np.array(content["centre"])
        level, weights = np.array(content["level"]), np.array(content["weights"])
        return cls(places, centre, level, weights, Spread(*content["spread"]))


def _covariance(one: Matrix, other: Matrix, centre: Column, spread: Spread) -> Matrix:
    smooth = np.exp(-0.5 * distances(one, other) ** 2)
    trend = 1.0 + (one - centre) @ (other - centre).T / one.shape[1]
    return np.asarray(spread.smooth**2 * smooth + spread.linear**2 * trend)
