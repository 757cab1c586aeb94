"""A value with its prediction interval, and the grades of trust in it, as answers give them."""

from typing import Literal

from pydantic import BaseModel, Field

Grade = Literal["A", "B", "C"]
"""`A`: the device was measured, and the question lies in the range of the training set. `B`: the
device or program was not measured, and the interval was calibrated on held-out ones. `C`:
extrapolated beyond the training set, or without a calibrated interval."""


class IntervalOut(BaseModel):
    """A value with its prediction interval."""

    value: float = Field(description="best estimate, in `unit`")
    low: float | None = Field(description="lower end of the interval, null without one")
    high: float | None = Field(description="upper end of the interval, null without one")
    coverage: float | None = Field(
        description="calibrated share of measured values in the interval; null where not calibrated"
    )
    unit: str = Field(description="unit of the value: ms, MiB, W, J, tokens/s or samples/s")
