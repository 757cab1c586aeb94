"""Prediction intervals of serving, calibrated on held-out models and on held-out devices.

On a device outside the training set, the device's error adds to the model's error: the bounds of
both are combined as the root of their sum of squares, and are at least a factor of two.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from forerun.data.columns import Mask, Matrix, Names
from forerun.models.conformal import (
    POOLED,
    UNCALIBRATED,
    Intervals,
    LogQuantiles,
    conformal_quantile,
    out_of_fold,
)

HeldOutResiduals = Callable[[Mask], Matrix]
"""Mask of rows to hold out -> (3, held out) log residuals, from a fit on the other rows."""
FOLDS: Final = 10
TARGETS: Final = ("power_share", "time_over_bound", "energy_per_output")
"""Strata: the target of a residual, in the order of the columns of `ServingRows.targets`."""
ANOTHER_DEVICE: Final = float(np.log(2.0))
"""Smallest log distance of the bounds on a device outside the training set."""


def serving_intervals(
    models: Names,
    devices: Names,
    residuals: HeldOutResiduals,
    seed: int,
) -> Intervals:
    """Bounds of log(measured / predicted), with one stratum for each of `TARGETS`.

    The finite-sample correction counts rows. There are only a dozen or two models per kind and two
    devices, so bounds that count those would be the largest residual of any row.

    Args:
        models: model of each of n rows, a group that is held out whole.
        devices: device of each of n rows, also held out whole.
        residuals: residuals of held-out rows from a fit on the other rows.
        seed: assigns models to folds.
    """
    by_model = out_of_fold(models, residuals, folds=FOLDS, seed=seed, columns=len(TARGETS))
    seen = LogQuantiles.of(by_model.ravel(), np.repeat(TARGETS, len(models)))
    reach = np.zeros((len(TARGETS), 1))
    if len(np.unique(devices)) > 1:
        # The sign of another device's error is unknown: absolute residuals, each counted once.
        by_device = np.abs(out_of_fold(devices, residuals, columns=len(TARGETS)))
        reach = np.array([[conformal_quantile(column, seen.coverage)] for column in by_device])
    reach = np.maximum(np.hypot(seen.log_ends(TARGETS), reach), ANOTHER_DEVICE)
    bounds = {name: (-low, high) for name, (low, high) in zip(TARGETS, reach.tolist(), strict=True)}
    return Intervals(seen, LogQuantiles({POOLED: UNCALIBRATED, **bounds}))
