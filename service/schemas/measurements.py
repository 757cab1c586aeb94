"""Answers to measurements over HTTP."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field


class ErrorOut(BaseModel):
    """One metric's error on the rows of a request, before and after adaptation."""

    rows: int = Field(description="rows with a measured value and a prediction")
    mape_before: float = Field(
        description="mean absolute percentage error before adaptation, percent"
    )
    mape_after: float | None = Field(
        description="mean absolute percentage error after adaptation to the other rows, percent; "
        "null where no other row was left to learn from"
    )
    width_before: float | None = Field(
        description="median ratio of the interval's high to its low before adaptation"
    )
    width_after: float | None = Field(description="the same ratio after adaptation")
    held_before: float | None = Field(
        description="share of rows inside their interval before adaptation, 0 to 1"
    )
    held_after: float | None = Field(description="the same share after adaptation")
    enough: bool = Field(
        description="whether further rows would lower the error by less than one percentage point"
    )


class AdaptationOut(BaseModel):
    """The result of adapting to a set of measurements."""

    set: str = Field(description="identifier of the set, with which it can be rolled back")
    device: str = Field(description="name of the device")
    rows: int = Field(description="measurements in this set")
    rows_in_use: int = Field(description="measurements of the device in use, including these")
    errors: dict[str, ErrorOut] = Field(description="metric -> errors before and after")
    folds: int = Field(description="number of folds, each with an adaptation of its own")
    one_by_one: bool = Field(description="whether each fold held out a single model or operator")
    version: str = Field(description="version of the predictor that answers from now on")
    source: Literal["adapt"] = Field(default="adapt", description="what the measurements are for")


class SetOut(BaseModel):
    """A set of measurements."""

    set: str = Field(description="identifier of the set")
    time: datetime = Field(description="when it was stored")
    rows: int = Field(description="number of measurements in the set")
    undone: bool = Field(description="whether it was rolled back")
    source: Literal["adapt", "observe"] = Field(
        description="whether answers adapt to it, or are only compared with it"
    )


class SetsOut(BaseModel):
    """A device's sets of measurements, the oldest first."""

    device: str = Field(description="name of the device")
    sets: list[SetOut] = Field(description="all sets, including those that were rolled back")
