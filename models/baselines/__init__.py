"""Baselines: the roofline bound, and the geometric mean of the training set.

Every table of scores contains them.
"""

from forerun.models.baselines.constant import Constant
from forerun.models.baselines.roofline import Roofline

__all__ = ["Constant", "Roofline"]
