"""Gaussian processes: covariances, closed-form posterior, mixtures, regression from few rows.

Formulas are those of Rasmussen and Williams (2006), chapters 2, 4 and 5.
"""

from forerun.models.gaussian_process.additive_categorical import AdditiveCategoricalProcess
from forerun.models.gaussian_process.regression import (
    Covariance,
    GaussianProcessRegression,
    Posterior,
)

__all__ = ["AdditiveCategoricalProcess", "Covariance", "GaussianProcessRegression", "Posterior"]
