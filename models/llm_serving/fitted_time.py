"""Times of iterations in closed form, scaled to what a fitted predictor says of the same worker."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from forerun.data.columns import Column
from forerun.features.llm_serving.iteration import Iterations, IterationTime

WIDEST_SCALE: Final = 4.0
"""Scales beyond this factor either way are cut off: there the two disagree about something else."""


@dataclass(frozen=True, slots=True)
class FittedTime:
    """Times of iterations, those of decoding and those of prompts each times a factor.

    Attributes:
        time: times that are scaled.
        prefill: factor of what prompts add to an iteration.
        decode: factor of an iteration that only decodes.
        least: times that no iteration is faster than; None for no such bound.
    """

    time: IterationTime
    prefill: float
    decode: float
    least: IterationTime | None = None

    def seconds(self, iterations: Iterations) -> Column:
        """Time of each iteration, shape (n,), seconds."""
        none = np.zeros(len(iterations))
        plain = np.asarray(self.time.seconds(iterations))
        decodes = np.asarray(
            self.time.seconds(
                replace(iterations, prefill_tokens=none, prefill_pairs=none, prefill_sequences=none)
            )
        )
        alone = np.where(iterations.decode_sequences > 0, np.minimum(decodes, plain), 0.0)
        found = self.decode * alone + self.prefill * (plain - alone)
        return found if self.least is None else np.maximum(found, self.least.seconds(iterations))


def cut_off(factor: float) -> float:
    """A factor of at most `WIDEST_SCALE` either way."""
    return min(max(factor, 1.0 / WIDEST_SCALE), WIDEST_SCALE)
