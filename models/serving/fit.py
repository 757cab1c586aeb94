"""Regression for one kind of generative model: a weighted mean of boosters and a Gaussian process.

Both predict power share and time over bound. Their sum, energy over bound, has separate boosters,
and the two predictions of it are averaged. Time then follows from energy and power, which keeps the
three consistent.

A Gaussian process with a random effect per model, common to all rows of that model.

Model names enter only the covariance of the training rows, as groups. A query belongs to no group,
so its prediction does not depend on any name. See Rasmussen and Williams 2006, section 2.7, for the
linear part, and Laird and Ware 1982 for random effects.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from forerun.data.columns import Column, Matrix, Names
from forerun.models.domain.feature_range import FeatureRange
from forerun.models.gaussian_process.regression import mean_weights, same, squared_exponential
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.serving.features import FEATURES, LENGTH_SCALES, ServingRows

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


TARGETS = ("share", "slower", "energy")
SETTINGS: Mapping[str, Any] = {
    "objective": "huber",
    "alpha": 0.3,
    "learning_rate": 0.1,
    "num_leaves": 8,
    "min_data_in_leaf": 10,
    "feature_fraction": 0.5,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "lambda_l2": 1.0,
}
STANDARD_DEVIATIONS: Mapping[str, StandardDeviations] = {
    "llm_serving": StandardDeviations(group=0.05, noise=0.1),
    "diffusion": StandardDeviations(group=0.2, noise=0.12),
}
"""The random effect of a model is larger for the ten diffusion models than for the thirty language
models, whose inputs explain more of the differences between models."""
PROCESS_SHARE = 0.65
"""Weight of the process in the mean; with language models held out in turn, the errors with 0.5
and 0.7 differ by 0.2 percentage points."""
MOST_SHARE = float(np.log(1.02))
"""Log of the largest predicted share of the TDP: devices keep to their limit except for
short overshoots."""


class LogAnswer(NamedTuple):
    """Predicted logarithms, shape (n,) each: power share, time over bound, energy (their sum)."""

    share: Column
    slower: Column

    @property
    def energy(self) -> Column:
        """Log of energy over that of the bound at design power, shape (n,)."""
        return self.share + self.slower

    @property
    def columns(self) -> Matrix:
        """The three targets in the order of `ServingRows.targets`, shape (n, 3)."""
        return np.column_stack([self.share, self.slower, self.energy])


@dataclass(frozen=True)
class ServingFit:
    """Boosters and process for one kind of workload.

    Attributes:
        kind: kind of the workloads.
        boosters: target -> bag of boosters.
        process: Gaussian process of the first two targets, power share and time over bound.
        ranges: ranges of all features over the training rows.
    """

    kind: str
    boosters: Mapping[str, BoosterBag]
    process: MixedEffectsProcess
    ranges: FeatureRange

    @classmethod
    def of(
        cls,
        rows: ServingRows,
        targets: Matrix,
        groups: Names,
        *,
        trees: int,
        seeds: range,
    ) -> Self:
        """Fit boosters and process to n training rows.

        Args:
            rows: n training rows.
            targets: (n, 3), as in `ServingRows.targets`.
            groups: the model of each row.
            trees: number of boosting rounds.
            seeds: seeds of the boosters, one per booster.
        """
        boosters = {
            name: BoosterBag.fit(
                rows.features, column, parameters=SETTINGS, trees=trees, seeds=seeds
            )
            for name, column in zip(TARGETS, targets.T, strict=True)
        }
        process = MixedEffectsProcess.fit(
            rows.points(LENGTH_SCALES["fit"][rows.kind]),
            targets[:, :2],
            groups,
            STANDARD_DEVIATIONS[rows.kind],
        )
        return cls(
            rows.kind, boosters, process, FeatureRange.of(FEATURES[rows.kind], rows.features)
        )

    def predict(self, rows: ServingRows) -> LogAnswer:
        """Predictions for n rows; features are clipped to the ranges of the training rows."""
        inside = rows.clipped(self.ranges)
        boosted = {name: bag.predict(inside.features) for name, bag in self.boosters.items()}
        smooth = self.process.predict(inside.points(LENGTH_SCALES["fit"][self.kind]))
        weight = 1.0 - PROCESS_SHARE
        share = weight * boosted["share"] + PROCESS_SHARE * smooth[:, 0]
        share = np.minimum(share, MOST_SHARE)
        slower = weight * boosted["slower"] + PROCESS_SHARE * smooth[:, 1]
        energy = weight * boosted["energy"] + PROCESS_SHARE * smooth.sum(axis=1)
        return LogAnswer(share, (energy + share + slower) / 2.0 - share)
