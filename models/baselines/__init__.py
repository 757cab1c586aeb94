"""Baselines without learning: the roofline bound, and the geometric mean of the training set.

They stand in every table of scores, so that each predictor is compared with the least effort.
"""

from forerun.models.baselines.constant import Constant
from forerun.models.baselines.roofline import Roofline

__all__ = ["Constant", "Roofline"]
