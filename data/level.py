"""The nominal coverage of prediction intervals, and what follows from it."""

from statistics import NormalDist
from typing import Final

LEVEL: Final = 0.9
"""Share of measured values that an interval is meant to contain."""
HALF_WIDTH: Final = NormalDist().inv_cdf(0.5 * (1.0 + LEVEL))
"""Half-width of an interval of a normal distribution at this level, in standard deviations."""
