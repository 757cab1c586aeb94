"""Compare a candidate with the champion on measurements that neither adapted to.

The same workloads are held out of every retraining, however many measurements are added.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np
from pydantic import BaseModel, ConfigDict

from forerun.data.columns import Mask
from forerun.training.scores.errors import SliceChange

HELD_OUT_SHARE: Final = 0.25
"""Share of the groups that are held out, chosen by a hash of their names."""
BYTES: Final = 8


def held_out(groups: Sequence[str]) -> Mask:
    """Whether the rows of n groups are held out, shape (n,).

    This depends only on the name of the group, so that a workload that was held out once is also
    held out of all later training sets.

    Args:
        groups: the group of each of n rows, such as the hash of its workload.
    """
    return np.array([_position(group) < HELD_OUT_SHARE for group in groups], dtype=np.bool_)


def _position(group: str) -> float:
    """A pseudorandom number in [0, 1) that depends only on the name."""
    digest = hashlib.sha256(group.encode()).digest()[:BYTES]
    return float(int.from_bytes(digest, "big") / 256**BYTES)


FILE: Final = "comparison.json"


class Comparison(BaseModel):
    """Errors of a candidate and of the champion on held-out measurements.

    Attributes:
        champion: version of the predictors that the candidate was compared with.
        measurements: hash of all measurements, including the held-out ones.
        training_rows, held_out_rows: number of rows of both parts.
        slices: the comparison in each slice of the held-out rows; empty if there are none.
        unknown: slices of the training rows without a held-out row, by their property values.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    champion: str
    measurements: str
    training_rows: int
    held_out_rows: int
    slices: tuple[SliceChange, ...]
    unknown: tuple[str, ...] = ()


ROWS_FILE: Final = "held_out.json"
PREDICTED: Final = ("measured", "in_use", "candidate")


class HeldOutRow(BaseModel):
    """A measured value that neither predictor was adapted to.

    Attributes:
        metric: name of the metric, which determines the unit of the values.
        facts: property (device, kind, family, precision) -> value.
        workload: what was measured, in words.
        group: hash of the group that is held out as a whole.
        measured, in_use, candidate: the measured value, and both predictions.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    metric: str
    facts: dict[str, str]
    workload: str
    group: str
    measured: float
    in_use: float
    candidate: float
