"""Gaussian processes: closed-form posterior, regression from few rows, categorical effects.

Formulas are those of Rasmussen and Williams (2006), chapters 2 and 5.
"""

from forerun.models.gaussian_process.additive_categorical import AdditiveCategoricalProcess
from forerun.models.gaussian_process.posterior import Posterior
from forerun.models.gaussian_process.regression import Covariance, GaussianProcessRegression

__all__ = ["AdditiveCategoricalProcess", "Covariance", "GaussianProcessRegression", "Posterior"]
