"""Correction of one time of deployments: factors on its parts, then what is left over.

There are two answers. For a device and a model of the training set, boosters on all features
predict the residual of the closed form. For others, the closed form with its fitted factors is the
time per token, since boosters made its error on held-out devices larger; the time to the first
token is corrected by half the residual that boosters predict from features that carry over.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix
from forerun.features.llm_serving.features import DeploymentRows
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.llm_serving.part_scales import FORMS, PartScales

SETTINGS: Final[dict[str, Any]] = {
    "objective": "l1",
    "extra_trees": True,
    "num_leaves": 31,
    "learning_rate": 0.05,
    "min_data_in_leaf": 5,
    "feature_fraction": 0.5,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "lambda_l2": 1.0,
}
TRANSFER_SETTINGS: Final[dict[str, Any]] = {**SETTINGS, "num_leaves": 15}
TRANSFER_TREES: Final = 300
TRUST: Final = 0.5
"""Share of a predicted residual that is believed on another device or model."""


@dataclass(frozen=True)
class Correction:
    """The fitted prediction of one time.

    Attributes:
        form: position of the time in `FORMS`.
        scales: factors on the parts of the closed form.
        transfer: boosters of the residual on the features of `SHAPE`; None for none.
        own: boosters of the residual on all features.
    """

    form: int
    scales: PartScales
    transfer: BoosterBag | None
    own: BoosterBag

    @classmethod
    def fit(
        cls, form: int, rows: DeploymentRows, target: Column, trees: int, seeds: Sequence[int]
    ) -> Self:
        """Fit to n deployments.

        Args:
            form: position in `FORMS`.
            rows: n deployments.
            target: (n,) logarithms of measured seconds.
            trees: boosting rounds for devices and models of the training set.
            seeds: seeds of the boosters.
        """
        metric, seconds, number = FORMS[form]
        scales = PartScales.fit(seconds, number, rows, target)
        left = target - np.log(seconds(scales.logs, rows))
        transfer = None
        if metric == "ttft_ms":
            transfer = BoosterBag.fit(
                rows.shape,
                left,
                parameters=TRANSFER_SETTINGS,
                trees=TRANSFER_TREES,
                seeds=seeds,
            )
        own = BoosterBag.fit(_all(rows), left, parameters=SETTINGS, trees=trees, seeds=seeds)
        return cls(form, scales, transfer, own)

    def predict(self, rows: DeploymentRows, seen: Mask) -> Column:
        """Logarithm of seconds, shape (n,).

        Args:
            rows: n deployments.
            seen: (n,) whether device and model are in the training set.
        """
        metric, seconds, _ = FORMS[self.form]
        base = np.log(seconds(self.scales.logs, rows))
        apart = np.zeros(len(rows))
        if self.transfer is not None:
            apart = TRUST * self.transfer.predict(rows.shape)
        found = np.where(seen, self.own.predict(_all(rows)), apart)
        if metric == "ttft_ms":
            # In the closed loops of the training set prompts start together, and factors absorb
            # that; Poisson arrivals are answered by the closed form alone.
            plain = np.log(seconds(np.zeros_like(self.scales.logs), rows))
            return np.where(rows.closed > 0.0, base + found, plain)
        return np.asarray(base + found)


def _all(rows: DeploymentRows) -> Matrix:
    return np.column_stack([rows.shape, rows.figures])
