"""Grouped split-conformal prediction: intervals calibrated on groups held out of training.

A predictor declares the groups of its rows (families of networks, devices), the strata with
quantiles of their own, and a scale where errors are heteroscedastic. `out_of_fold` predicts every
row with a fit that excludes its group. `LogQuantiles` takes quantiles of the residuals per stratum
with the finite-sample correction of split conformal prediction; `Intervals` combines those for
devices in the training set with those for other devices. `weighted_quantile` and `group_weights`
give each group the same weight.
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
