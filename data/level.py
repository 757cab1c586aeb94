"""The nominal coverage of prediction intervals, and derived constants."""

from statistics import NormalDist
from typing import Annotated, Final

from pydantic import Field

LEVEL: Final = 0.9
"""Nominal share of measured values inside an interval."""
HALF_WIDTH: Final = NormalDist().inv_cdf(0.5 * (1.0 + LEVEL))
"""Half-width of a normal distribution's interval at this level, in standard deviations."""
USUAL: Final = 100.0 * LEVEL
"""The same level in percent, as in queries."""
Level = Annotated[
    float,
    Field(ge=50.0, le=99.0, description="level of the calibrated intervals, percent"),
]
"""Level of a query: an option of every workload, which only affects the intervals of an answer
(`models/answers/interval_level.py`)."""
