"""Domain of a training set: ranges of its features, and distance of a device from its devices.

For a query outside the domain, predictors add a limit (`Predictions.limits`).
"""

from forerun.models.domain.feature_range import FeatureRange

__all__ = ["FeatureRange"]
