"""Gradient boosting: boosters of LightGBM, fitted with several seeds and stored as text."""

from forerun.models.gradient_boosting.bags import LIGHTGBM, BoosterBag, load_together

__all__ = ["LIGHTGBM", "BoosterBag", "load_together"]
