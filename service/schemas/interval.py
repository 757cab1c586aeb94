"""A value with its prediction interval, as answers give it."""

from pydantic import BaseModel, Field


class IntervalOut(BaseModel):
    """A value with its prediction interval."""

    value: float = Field(description="best estimate, in `unit`")
    low: float | None = Field(description="lower end of the interval, null without one")
    high: float | None = Field(description="upper end of the interval, null without one")
    coverage: float | None = Field(
        description="calibrated share of measured values in the interval; null where not calibrated"
    )
    unit: str = Field(description="unit of the value: ms, MiB, W, J, tokens/s or samples/s")
