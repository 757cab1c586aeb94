"""Power of operators in a loop on devices whose operators were measured: boosters over features.

A booster learns how much of the draw at the roofline shows. On the devices that it was trained on
it is better than the law of power (`power_law`), on any other one worse.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.power.operator_features import PowerFeatures, gather_power
from forerun.models.conformal.intervals import LogQuantiles, held_out_folds
from forerun.models.gradient_boosting import BoosterBag

Column = NDArray[np.float64]
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
"""Of the design power: the dynamic part of kernels so short that the device waits."""

SHORT_MS = 0.02
STRATA = ("busy", "limit", "short", "short_limit")
"""Kernels below the power limit and at it; those whose roofline time is under `SHORT_MS` apart."""
FOLDS = 5


def fit_boosters(rows: Measurements, seed: int, bag: int, trees: int) -> BoosterBag:
    """Boosters of log(dynamic power / its draw at the roofline).

    Args:
        rows: operators with `power_w`.
        seed: first seed is 100 times this, plus one.
        bag: boosters.
        trees: boosting rounds.
    """
    features = gather_power(rows.queries)
    floor = LEAST_DYNAMIC * (features.waiting_w + features.headroom_w)
    dynamic = np.maximum(rows.values["power_w"] - features.waiting_w, floor)
    seeds = range(seed * 100 + 1, seed * 100 + 1 + bag)
    target = np.log(dynamic / features.base_w)
    return BoosterBag.fit(features.matrix, target, parameters=SETTINGS, trees=trees, seeds=seeds)


def boosted_w(boosters: BoosterBag, features: PowerFeatures, correction: Column) -> Column:
    """Power of n operators, at most the design power.

    Args:
        boosters: as `fit_boosters` returns them.
        features: of n operators.
        correction: (n,) of the logarithm of the dynamic part.
    """
    dynamic = features.base_w * np.exp(boosters.predict(features.matrix) + correction)
    return features.waiting_w + np.minimum(dynamic, features.headroom_w)


def mean_boosted_w(boosters: BoosterBag, queries: Sequence[Query]) -> Column:
    """Power of n operators or networks, as the mean over their operators' roofline time."""
    features = gather_power(queries)
    watts = boosted_w(boosters, features, np.zeros(len(features)))
    return features.mean_over_time(watts, len(queries))


def dynamic_residuals(features: PowerFeatures, predicted_w: Column, watts: Column) -> Column:
    """Logarithm of measured over predicted dynamic power, (n,)."""
    floor = LEAST_DYNAMIC * (features.waiting_w + features.headroom_w)
    measured = np.maximum(watts - features.waiting_w, floor)
    found: Column = np.log(measured / np.maximum(predicted_w - features.waiting_w, floor))
    return found


def strata(features: PowerFeatures, watts: Column) -> list[str]:
    """Of `STRATA`: kernels at the power limit are predicted best, short ones worst."""
    at_limit = watts > 0.9 * (features.waiting_w + features.headroom_w)
    codes = at_limit + 2 * (features.bound_ms < SHORT_MS).astype(np.intp)
    return [STRATA[code] for code in codes]


def shapes_left_out(rows: Measurements, seed: int, bag: int, trees: int) -> LogQuantiles:
    """Quantiles of log(measured / predicted) on operator shapes left out, by stratum.

    Args:
        rows: operators with `power_w` and the group `op_shape`.
        seed: of the folds and boosters.
        bag: boosters.
        trees: boosting rounds.
    """
    measured = np.log(rows.values["power_w"])
    residuals, strata_of = np.full(len(rows), np.nan), np.full(len(rows), "all", dtype="U16")
    for held in held_out_folds(rows.groups["op_shape"], FOLDS, seed):
        if held.all():
            continue
        boosters = fit_boosters(rows.take(~held), seed, bag, trees)
        features = gather_power(rows.take(held).queries)
        watts = boosted_w(boosters, features, np.zeros(len(features)))
        residuals[held] = measured[held] - np.log(watts)
        strata_of[held] = strata(features, watts)
    return LogQuantiles.of(residuals, strata_of)
