"""The nominal coverage of prediction intervals, and what follows from it."""

from statistics import NormalDist
from typing import Annotated, Final

from pydantic import Field

LEVEL: Final = 0.9
"""Share of measured values that an interval is meant to contain."""
HALF_WIDTH: Final = NormalDist().inv_cdf(0.5 * (1.0 + LEVEL))
"""Half-width of an interval of a normal distribution at this level, in standard deviations."""
USUAL: Final = 100.0 * LEVEL
"""The same level in percent, as questions give it."""
Level = Annotated[
    float,
    Field(ge=50.0, le=99.0, description="level of the calibrated intervals, percent"),
]
"""Level of a question: an option of every workload, which only the intervals of an answer follow
(`models/answers/interval_level.py`)."""
