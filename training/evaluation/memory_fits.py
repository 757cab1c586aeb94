"""Whether published set-ups that ran are said to fit their own card, and failed ones are not.

A set-up that ran needs no calibration to be judged: the card had enough. The limit "at least ...
the device has ..." must not stand in its answer; a best estimate or an upper end above what the
card gives is a run that a scheduler refuses without need.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forerun.data.query import Query
from forerun.models.memory.peak_memory import PEAK, REFUSAL
from forerun.models.predictor import Predictor


@dataclass(frozen=True)
class FitCounts:
    """Of n runs, how many are said not to fit.

    Attributes:
        runs: how many were asked.
        refused: with the limit that even the lower end is above the card's memory.
        above_at_value: whose best estimate is above the card's memory.
        above_at_high: whose upper end is.
        first_refused: position of the first refused run; None where there is none.
    """

    runs: int
    refused: int
    above_at_value: int
    above_at_high: int
    first_refused: int | None = None


def fit_counts(predictor: Predictor, queries: Sequence[Query]) -> FitCounts:
    """How many of these runs are said not to fit the memory of their devices.

    Args:
        predictor: answers `peak_memory_mib`.
        queries: runs on devices whose memory is known.
    """
    if not queries:
        return FitCounts(0, 0, 0, 0)
    answers = predictor.predict(queries)
    held = np.array([(query.device.memory_gib or np.inf) * 1024.0 for query in queries])
    refused = [any(line.startswith(REFUSAL) for line in lines) for lines in answers.limits]
    return FitCounts(
        len(queries),
        sum(refused),
        int((answers.values[PEAK] > held).sum()),
        int((answers.high[PEAK] > held).sum()),
        refused.index(True) if any(refused) else None,
    )
