"""What measurements are answered with over HTTP."""

from datetime import datetime

from pydantic import BaseModel, Field


class ErrorOut(BaseModel):
    """One metric's error on the rows that were sent."""

    rows: int = Field(description="rows with a measured value and an answer")
    mape_before: float = Field(description="mean absolute error before, percent")
    mape_after: float | None = Field(
        description="mean absolute error of adaptations that did not see the row judged, percent; "
        "null where no other row was left to learn from"
    )
    width_before: float | None = Field(description="median of the interval's high over its low")
    width_after: float | None = Field(description="the same when adapted")
    held_before: float | None = Field(description="share of rows inside their interval, 0 to 1")
    held_after: float | None = Field(description="the same when adapted")
    enough: bool = Field(description="whether further rows would gain less than one percent")


class LearntOut(BaseModel):
    """What came of a set of measurements."""

    set: str = Field(description="id, to roll it back")
    device: str = Field(description="name of the device")
    rows: int = Field(description="measurements in this set")
    rows_in_use: int = Field(description="measurements of the device in use, with these")
    errors: dict[str, ErrorOut] = Field(description="metric -> errors before and after")
    folds: int = Field(description="adaptations that `mape_after` comes from")
    one_by_one: bool = Field(description="whether each held out one workload, else several")
    version: str = Field(description="version of the predictor that answers from now on")


class SetOut(BaseModel):
    """A set of measurements."""

    set: str = Field(description="id")
    time: datetime = Field(description="when it was kept")
    rows: int = Field(description="measurements in it")
    undone: bool = Field(description="whether it was rolled back")


class SetsOut(BaseModel):
    """A device's sets of measurements, the oldest first."""

    device: str = Field(description="name of the device")
    sets: list[SetOut] = Field(description="sets, those rolled back too")
