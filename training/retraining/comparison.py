"""Errors of a candidate next to those of the champion, on measurements that neither adapted to."""

from typing import Final

from pydantic import BaseModel, ConfigDict

from forerun.training.scores.slices import SliceChange

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
