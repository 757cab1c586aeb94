"""Split-conformal prediction intervals, calibrated on groups that were held out of training.

Quantiles of the residuals of held-out groups, with a finite-sample correction (Lei et al. 2018,
arXiv 1604.04173); strata with too few residuals use the quantiles of all residuals.
"""

from forerun.models.conformal.intervals import Intervals, LogQuantiles

__all__ = ["Intervals", "LogQuantiles"]
