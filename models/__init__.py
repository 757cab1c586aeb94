"""Second floor: predictors with one protocol, `fit`, `adapt` and `predict`."""

from forerun.models.chosen import Chosen
from forerun.models.constant import Constant
from forerun.models.predictor import Predictor
from forerun.models.roofline import Roofline

PREDICTORS: tuple[type[Predictor], ...] = (Constant, Roofline, Chosen)
"""Every predictor that an artifact can hold."""
