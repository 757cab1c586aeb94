"""Predicts peak memory of training and inference: an analytical plan, corrected by regression.

`CalibratedMemory` adds prediction intervals calibrated on published set-ups.
"""

from forerun.models.memory.calibrated import CalibratedMemory
from forerun.models.memory.peak_memory import Memory

__all__ = ["CalibratedMemory", "Memory"]
