"""Correction of one time of deployments: factors on its parts, then what is left over.

Boosters predict the ratio of the measured time to the closed form, and minimise the mean absolute
percentage error: few runs wait for minutes where most wait for milliseconds, and boosters of the
logarithm of the ratio are further off on average.

Of a model and a device of the training set, boosters on all features are believed. On another
device they are believed as far as `OTHER_DEVICE` says. Of another model, the time per token is the
closed form with its fitted factors, since boosters made its error larger; the time to the first
token is the closed form times a ratio that boosters predict from features that carry over.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix
from forerun.features.llm_serving.features import DeploymentRows
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.gradient_boosting.lean import coarse
from forerun.models.llm_serving.part_scales import FORMS, PartScales, as_started

SETTINGS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "objective": "l1",
        "extra_trees": True,
        "num_leaves": 31,
        "learning_rate": 0.05,
        "min_data_in_leaf": 5,
        "feature_fraction": 0.8,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "lambda_l2": 1.0,
    }
)
TRANSFER_SETTINGS: Final = MappingProxyType({**SETTINGS, "num_leaves": 15, "feature_fraction": 0.5})
TRANSFER_TREES: Final = 300
OTHER_DEVICE: Final[Mapping[str, float]] = MappingProxyType({"tpot_ms": 0.5, "ttft_ms": 1.0})
"""Share of a predicted log ratio that is believed on a device outside the training set."""
THRESHOLD_DIGITS: Final = 9
"""Releases such as 10200.03 differ in the last of seven digits."""
LEAST: Final = 0.05
"""Smallest ratio that is predicted."""


@dataclass(frozen=True)
class Correction:
    """The fitted prediction of one time.

    Attributes:
        form: position of the time in `FORMS`.
        scales: factors on the parts of the closed form.
        transfer: boosters of the ratio to the closed form without factors on the features of
            `SHAPE`; None where the closed form with factors is taken instead.
        own: boosters of the ratio to the closed form with factors on all features.
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
            trees: boosting rounds for models of the training set.
            seeds: seeds of the boosters.
        """
        metric, seconds, number = FORMS[form]
        scales = PartScales.fit(seconds, number, rows, target)
        transfer = None
        if metric == "ttft_ms":
            left = target - np.log(seconds(np.zeros(number), rows))
            transfer = _fitted(rows.shape, left, TRANSFER_SETTINGS, TRANSFER_TREES, seeds)
        left = target - np.log(seconds(scales.logs, rows))
        return cls(form, scales, transfer, _fitted(_all(rows), left, SETTINGS, trees, seeds))

    def predict(self, rows: DeploymentRows, devices: Mask, models: Mask) -> Column:
        """Logarithm of seconds, shape (n,).

        Args:
            rows: n deployments.
            devices: (n,) whether the device is in the training set.
            models: (n,) whether the model is in the training set.
        """
        metric, seconds, number = FORMS[self.form]
        plain = np.log(seconds(np.zeros(number), rows))
        base = np.log(seconds(self.scales.logs, rows))
        trust = np.where(devices, 1.0, OTHER_DEVICE[metric])
        started = np.ones(len(rows), dtype=np.bool_) if metric != "ttft_ms" else rows.together > 0.0
        found = base.copy()
        known, other = models & started, ~models & started
        found[known] += trust[known] * _log_ratio(self.own, _all(rows)[known])
        if self.transfer is not None and other.any():
            found[other] = plain[other] + _log_ratio(self.transfer, rows.shape[other])
        return as_started(metric, np.asarray(found), rows)


def _fitted(
    matrix: Matrix, left: Column, settings: Mapping[str, Any], trees: int, seeds: Sequence[int]
) -> BoosterBag:
    """Boosters of a ratio less one; an absolute error counts by its share of the ratio.

    Args:
        matrix: (n, features).
        left: (n,) logarithms of the ratio.
        settings: parameters of the boosters.
        trees: boosting rounds.
        seeds: seeds of the boosters.
    """
    ratio, weights = np.expm1(left), np.exp(-left)
    bag = BoosterBag.fit(
        matrix, ratio, parameters=settings, trees=trees, seeds=seeds, weights=weights
    )
    return BoosterBag(tuple(coarse(text, THRESHOLD_DIGITS) for text in bag.texts))


def _log_ratio(boosters: BoosterBag, matrix: Matrix) -> Column:
    if not len(matrix):
        return np.zeros(0)
    return np.asarray(np.log(np.maximum(1.0 + boosters.predict(matrix), LEAST)))


def _all(rows: DeploymentRows) -> Matrix:
    return np.column_stack([rows.shape, rows.figures])
