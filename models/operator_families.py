"""Boosters of the families of kernels: one each, and one pooled over the products of matrices."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.features.operator_features import FAMILIES, FEATURES
from forerun.models.boosters import BoosterBag
from forerun.models.operator_rows import OperatorRows

POOLED = "gemm"
POOLS = ("bmm", "linear")
FEWEST_ROWS = 100

SETTINGS: Mapping[str, Any] = {
    "learning_rate": 0.05,
    "feature_fraction": 0.6,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "lambda_l2": 1.0,
    "min_data_in_leaf": 40,
    "num_leaves": 31,
    "objective": "l1",
}
_GEMM_SETTINGS: Mapping[str, Any] = {"num_leaves": 63}
_ROW_SETTINGS: Mapping[str, Any] = {"objective": "huber", "alpha": 0.1}
_MONOTONE = {"log_reload_over_l2": 1, "lane_fill": -1}

FLOOR_OF_ROOFLINE = {"conv": 0.4}
"""Winograd needs 2.25 times fewer multiplications; no other family was seen below its bound."""


def fit_families(
    rows: OperatorRows, chosen: NDArray[np.bool_], *, trees: int, seeds: Sequence[int]
) -> dict[str, BoosterBag]:
    """A bag for every family (and the pool) that has rows enough.

    Args:
        rows: n measurements.
        chosen: (n,) mask of those that teach.
        trees: boosting rounds.
        seeds: one booster each.
    """
    found = {}
    for family in (*FAMILIES, POOLED):
        members = POOLS if family == POOLED else (family,)
        parts = [rows.family(member, chosen) for member in members]
        matrix = np.concatenate([p[0] for p in parts])
        if len(matrix) >= FEWEST_ROWS:
            target = np.concatenate([p[1] for p in parts])
            found[family] = BoosterBag.fit(
                matrix, target, parameters=_settings(family), trees=trees, seeds=seeds
            )
    return found


def _settings(family: str) -> dict[str, Any]:
    settings = dict(SETTINGS)
    if family in (*POOLS, POOLED):
        settings.update(_GEMM_SETTINGS)
    if family in ("softmax", "layer_norm"):
        settings.update(_ROW_SETTINGS)
        settings["monotone_constraints"] = [_MONOTONE.get(f, 0) for f in FEATURES[family]]
    return settings
