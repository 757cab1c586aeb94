"""Does the memory predictor agree that published set-ups which ran fit their own device?

A set-up that ran shows that the device had enough memory, whatever the measured peak. Its
prediction must not be refused, and a scheduler would reject
it without need where the best estimate or the upper end exceeds the device's memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forerun.data.query import Query
from forerun.models.memory.peak_memory import PEAK
from forerun.models.predictor import Predictor


@dataclass(frozen=True)
class FitCounts:
    """How many of n runs are predicted not to fit the memory of their device.

    Attributes:
        runs: number of runs, n.
        refused: runs whose interval lies above the device's memory even at its lower end.
        above_at_value: runs whose best estimate is above the device's memory.
        above_at_high: runs whose upper end is above the device's memory.
    """

    runs: int
    refused: int
    above_at_value: int
    above_at_high: int


def fit_counts(predictor: Predictor, queries: Sequence[Query]) -> FitCounts:
    """Count the runs that are predicted not to fit the memory of their devices.

    Args:
        predictor: a predictor of `peak_memory_mib`.
        queries: runs; a device of unknown memory fits everything.
    """
    if not queries:
        return FitCounts(0, 0, 0, 0)
    answers = predictor.predict(queries)
    held = np.array([(query.device.memory_gib or np.inf) * 1024.0 for query in queries])
    refused = [any(own.severity == "refusal" for own in limits) for limits in answers.limits]
    return FitCounts(
        len(queries),
        sum(refused),
        int((answers.values[PEAK] > held).sum()),
        int((answers.high[PEAK] > held).sum()),
    )
