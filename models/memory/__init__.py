"""Peak memory of training and inference: an analytic plan, corrected by regression on runs.

`CalibratedMemory` adds prediction intervals that are calibrated on published set-ups.
"""

from forerun.models.memory.calibrated import CalibratedMemory
from forerun.models.memory.peak_memory import Memory

__all__ = ["CalibratedMemory", "Memory"]
