"""Baselines in every table of scores: the roofline bound, and the geometric mean of the training
set.
"""

from forerun.models.baselines.constant import Constant
from forerun.models.baselines.roofline import Roofline

__all__ = ["Constant", "Roofline"]
