"""Boosters of the power of operators in a loop, on devices whose operators were measured.

The target is the dynamic power relative to the dynamic power at the roofline. On the devices of the
training set the boosters are more accurate than the power law (`forerun.models.power.law`), on any
other device less accurate.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from forerun.data.columns import Column, Mask
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.power.operator_features import PowerFeatures, gather_power
from forerun.models.conformal import LogQuantiles, out_of_fold
from forerun.models.gradient_boosting import BoosterBag

SETTINGS: Mapping[str, Any] = {
    "learning_rate": 0.15,
    "num_leaves": 31,
    "min_data_in_leaf": 10,
    "feature_fraction": 0.8,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "lambda_l2": 1.0,
    "objective": "l1",
}
LEAST_DYNAMIC = 0.02
"""Least dynamic power over design power, for kernels so short that the device mostly waits."""

SHORT_MS = 0.02
STRATA = ("busy", "limit", "short", "short_limit")
"""Strata of residuals: kernels below the power limit and at it, separately for those whose roofline
time is below `SHORT_MS`."""
FOLDS = 5


def fit_boosters(rows: Measurements, seed: int, bag: int, trees: int) -> BoosterBag:
    """Boosters of log(dynamic power / dynamic power at the roofline).

    Args:
        rows: operators with `power_w`.
        seed: the first booster's seed is 100 times this, plus one.
        bag: number of boosters.
        trees: number of boosting rounds.
    """
    features = gather_power(rows.queries)
    floor = LEAST_DYNAMIC * (features.waiting_w + features.headroom_w)
    dynamic = np.maximum(rows.values["power_w"] - features.waiting_w, floor)
    seeds = range(seed * 100 + 1, seed * 100 + 1 + bag)
    target = np.log(dynamic / features.base_w)
    return BoosterBag.fit(features.matrix, target, parameters=SETTINGS, trees=trees, seeds=seeds)


def boosted_w(boosters: BoosterBag, features: PowerFeatures, correction: Column) -> Column:
    """Power of n operators, W, at most the design power; shape (n,).

    Args:
        boosters: boosters of `fit_boosters`.
        features: features of n operators.
        correction: (n,) few-shot correction of the log of the dynamic power.
    """
    dynamic = features.base_w * np.exp(boosters.predict(features.matrix) + correction)
    return np.asarray(features.waiting_w + np.minimum(dynamic, features.headroom_w))


def mean_boosted_w(boosters: BoosterBag, queries: Sequence[Query]) -> Column:
    """Power of n operators or networks, W: the mean over operators, weighted by roofline time."""
    features = gather_power(queries)
    watts = boosted_w(boosters, features, np.zeros(len(features)))
    return features.mean_over_time(watts, len(queries))


def dynamic_residuals(features: PowerFeatures, predicted_w: Column, watts: Column) -> Column:
    """log(measured / predicted) of the dynamic power, shape (n,).

    Both powers are raised to `LEAST_DYNAMIC` of the design power.
    """
    floor = LEAST_DYNAMIC * (features.waiting_w + features.headroom_w)
    measured = np.maximum(watts - features.waiting_w, floor)
    residuals: Column = np.log(measured / np.maximum(predicted_w - features.waiting_w, floor))
    return residuals


def strata(features: PowerFeatures, watts: Column) -> list[str]:
    """Stratum of each of n kernels, one of `STRATA`.

    Residuals are smallest for kernels at the power limit and largest for short ones.
    """
    at_limit = watts > 0.9 * (features.waiting_w + features.headroom_w)
    codes = at_limit + 2 * (features.bound_ms < SHORT_MS).astype(np.intp)
    return [STRATA[code] for code in codes]


def held_out_shapes(rows: Measurements, seed: int, bag: int, trees: int) -> LogQuantiles:
    """Conformal quantiles of log(measured / predicted) on held-out operator shapes, by stratum.

    The finite-sample correction counts shapes, of which there are a thousand; each weighs alike.

    Args:
        rows: operators with `power_w` and the group `op_shape`.
        seed: determines folds and boosters.
        bag: number of boosters.
        trees: number of boosting rounds.
    """
    shapes = rows.groups["op_shape"]

    def predict(held: Mask) -> Column:
        boosters = fit_boosters(rows.take(~held), seed, bag, trees)
        features = gather_power(rows.take(held).queries)
        return boosted_w(boosters, features, np.zeros(len(features)))

    [watts] = out_of_fold(shapes, predict, folds=FOLDS, seed=seed)
    residuals = np.log(rows.values["power_w"]) - np.log(watts)
    names = np.array(strata(gather_power(rows.queries), watts))
    return LogQuantiles.of(residuals, names, groups=shapes)
