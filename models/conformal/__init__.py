"""Split-conformal prediction intervals, calibrated on groups that were held out of training.

Residuals of held-out groups give quantiles with a finite-sample correction (Lei et al. 2018, arXiv
1604.04173); strata that have too few residuals fall back to all of them.
"""

from forerun.models.conformal.intervals import Intervals, LogQuantiles

__all__ = ["Intervals", "LogQuantiles"]
