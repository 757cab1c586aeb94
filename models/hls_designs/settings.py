"""Settings of the boosters of `DesignBoost`, and of their average with the loop network."""

from collections.abc import Mapping
from typing import Any

COMMON: Mapping[str, Any] = {"bagging_fraction": 0.8, "bagging_freq": 1, "objective": "l2"}
"""Parameters of all boosters."""
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "seen": {
        "learning_rate": 0.12,
        "num_leaves": 63,
        "min_data_in_leaf": 9,
        "feature_fraction": 0.5,
        "lambda_l2": 1.0,
    },
    "unseen": {
        "learning_rate": 0.08,
        "num_leaves": 8,
        "min_data_in_leaf": 100,
        "feature_fraction": 0.3,
        "lambda_l2": 20.0,
    },
    "within": {
        "learning_rate": 0.1,
        "num_leaves": 24,
        "min_data_in_leaf": 10,
        "feature_fraction": 0.4,
        "lambda_l2": 1.0,
    },
}
"""Set of boosters -> further parameters."""
TREES: Mapping[str, int] = {"seen": 150, "unseen": 150, "within": 100}
"""Set of boosters -> boosting rounds."""
BAGS: Mapping[str, int] = {"seen": 1, "unseen": 3, "within": 1}
"""Set of boosters -> boosters whose predictions are averaged."""

MEMBERS = 2
"""Networks whose predictions are averaged."""
NETWORK_SHARE: Mapping[str, float] = {
    "latency_cycles": 0.75,
    "util_dsp": 0.7,
    "util_bram": 0.6,
    "util_lut": 0.7,
    "util_ff": 0.6,
}
"""Metric -> weight of the loop network in answers for programs of the training set; the boosters
have the rest. Chosen on the designs that the published protocol sets aside for validation."""
