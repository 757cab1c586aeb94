"""Regression for one kind of generative model: a weighted mean of boosters and a Gaussian process.

Both predict power share and time over bound. Their sum, energy over bound, has separate boosters,
and the two predictions of it are averaged. Time then follows from energy and power, which keeps the
three consistent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from forerun.data.columns import Column, Matrix, Names
from forerun.models.domain.feature_range import FeatureRange
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.serving.features import FEATURES, LENGTH_SCALES, ServingRows
from forerun.models.serving.mixed_effects_gp import MixedEffectsProcess, StandardDeviations

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
"""Log of the largest predicted share of the design power: devices keep to their limit except for
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
            rows.points(LENGTH_SCALES[rows.kind]),
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
        smooth = self.process.predict(inside.points(LENGTH_SCALES[self.kind]))
        weight = 1.0 - PROCESS_SHARE
        share = weight * boosted["share"] + PROCESS_SHARE * smooth[:, 0]
        share = np.minimum(share, MOST_SHARE)
        slower = weight * boosted["slower"] + PROCESS_SHARE * smooth[:, 1]
        energy = weight * boosted["energy"] + PROCESS_SHARE * smooth.sum(axis=1)
        return LogAnswer(share, (energy + share + slower) / 2.0 - share)
