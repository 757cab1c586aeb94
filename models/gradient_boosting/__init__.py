"""Gradient boosting: boosters of LightGBM, fitted with several seeds and stored as text."""

from forerun.models.gradient_boosting.bags import BoosterBag, load_together

__all__ = ["BoosterBag", "load_together"]
