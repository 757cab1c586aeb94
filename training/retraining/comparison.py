"""Errors of a candidate next to those of the champion, on measurements that neither adapted to.

Some workloads are held out of every retraining; more measurements do not change which.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np
from pydantic import BaseModel, ConfigDict

from forerun.data.columns import Mask
from forerun.training.scores.errors import SliceChange

HELD_OUT_SHARE: Final = 0.25
"""Share of the groups that are held out, by a hash of their names."""
BYTES: Final = 8


def held_out(groups: Sequence[str]) -> Mask:
    """Whether the rows of n groups are held out, shape (n,).

    It depends on the name of the group alone, so that a workload that was held out once is held out
    of all later training sets as well, whatever else was measured.

    Args:
        groups: the group of each of n rows, such as the hash of its workload.
    """
    return np.array([_position(group) < HELD_OUT_SHARE for group in groups], dtype=np.bool_)


def _position(group: str) -> float:
    """A number in [0, 1) that is drawn by the name."""
    digest = hashlib.sha256(group.encode()).digest()[:BYTES]
    return float(int.from_bytes(digest, "big") / 256**BYTES)


FILE: Final = "comparison.json"


class Comparison(BaseModel):
    """Errors of a candidate next to those of the champion.

    Attributes:
        champion: version of the predictors that the candidate was compared with.
        measurements: hash of all measurements, of which a part is held out.
        training_rows, held_out_rows: number of rows of both parts.
        slices: each slice of the held-out rows; empty where there are none.
        unknown: slices of the training rows of which nothing is held out, by their values.
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
        metric: name of the metric, whose unit the values have.
        facts: property (device, kind, family, precision) -> value.
        workload: what was measured, in words.
        group: hash of what is held out as a whole.
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
