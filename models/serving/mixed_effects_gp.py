"""A Gaussian process with a random effect per model, common to all rows of that model.

Model names enter only the covariance of the training rows, as groups. A query belongs to no group,
so its prediction does not depend on any name. See Rasmussen and Williams 2006, section 2.7, for the
linear part, and Laird and Ware 1982 for random effects.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from forerun.data.columns import Column, Matrix, Names
from forerun.models.gaussian_process.regression import mean_weights, same, squared_exponential

DIGITS = 9
"""Decimal digits to which inputs and weights are rounded before they are stored."""


@dataclass(frozen=True)
class StandardDeviations:
    """Prior standard deviations of the components of a value, in log space.

    Attributes:
        smooth: component with a squared exponential covariance.
        linear: linear trend.
        group: random effect of a model.
        noise: error of one row.
    """

    smooth: float = 0.5
    linear: float = 0.3
    group: float = 0.1
    noise: float = 0.08


@dataclass(frozen=True)
class MixedEffectsProcess:
    """Posterior means of m targets.

    Attributes:
        points: (n, d) training inputs, in units of their length scales.
        centre: (d,) mean of the training inputs.
        level: (m,) prior means: medians of the training values.
        weights: (n, m) weights of the training inputs in the posterior mean.
        deviations: prior standard deviations of the components.
    """

    points: Matrix
    centre: Column
    level: Column
    weights: Matrix
    deviations: StandardDeviations

    @classmethod
    def fit(
        cls,
        points: Matrix,
        values: Matrix,
        groups: Names,
        deviations: StandardDeviations,
    ) -> Self:
        """The posterior given the training values.

        Args:
            points: (n, d) training inputs, in units of the length scales.
            values: (n, m) training values, none missing.
            groups: the model of each of the n rows.
            deviations: prior standard deviations of the components.
        """
        points, centre = np.round(points, DIGITS), np.round(points.mean(axis=0), DIGITS)
        level = np.median(values, axis=0)
        shared = _covariance(points, points, centre, deviations)
        shared += deviations.group**2 * same(groups, groups)
        weights = mean_weights(shared, deviations.noise**2, values - level)
        return cls(points, centre, level, np.round(weights, DIGITS), deviations)

    def predict(self, points: Matrix) -> Matrix:
        """Posterior means at k points of shape (k, d), shape (k, m)."""
        cross = _covariance(points, self.points, self.centre, self.deviations)
        # One row at a time, so that rounding does not depend on the other rows of the batch.
        return np.array([self.level + row @ self.weights for row in cross]).reshape(
            len(points), len(self.level)
        )


def _covariance(
    one: Matrix, other: Matrix, centre: Column, deviations: StandardDeviations
) -> Matrix:
    smooth = squared_exponential(one, other)
    trend = 1.0 + (one - centre) @ (other - centre).T / one.shape[1]
    return np.asarray(deviations.smooth**2 * smooth + deviations.linear**2 * trend)
