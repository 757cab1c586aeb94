"""Grouped split-conformal prediction: intervals calibrated on groups held out of training.

A predictor declares the groups of its rows (families of networks, devices), the strata that have
quantiles of their own, and, where errors differ in size, a scale. `out_of_fold` predicts every row
by a fit without its group. `LogQuantiles` takes the quantiles of the residuals for each stratum
with the finite-sample correction of split conformal prediction; `Intervals` joins those of devices
in the training set with those of others. `weighted_quantile` and `group_weights` serve where each
group counts alike.
"""

from forerun.models.conformal.folds import held_out_folds, out_of_fold
from forerun.models.conformal.intervals import (
    POOLED,
    UNCALIBRATED,
    Intervals,
    LogQuantiles,
    conformal_quantile,
    group_weights,
    student_quantile,
    weighted_quantile,
)

__all__ = [
    "POOLED",
    "UNCALIBRATED",
    "Intervals",
    "LogQuantiles",
    "conformal_quantile",
    "group_weights",
    "held_out_folds",
    "out_of_fold",
    "student_quantile",
    "weighted_quantile",
]
