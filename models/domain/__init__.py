"""The domain of a training set: ranges of its features, and how unlike its devices a device is.

A predictor that is asked outside the domain says so in its limits (`Predictions.limits`).
"""

from forerun.models.domain.feature_range import FeatureRange

__all__ = ["FeatureRange"]
