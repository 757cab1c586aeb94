"""The answer that was given about a measured run, one estimate for each metric."""

from typing import Self

from pydantic import ConfigDict, Field, model_validator

from forerun.service.schemas.fields import Name, Strict

LARGEST = 1e15


class GivenEstimate(Strict):
    """A value with its 90 % interval as it was answered, and the predictor that answered."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: float = Field(gt=0, le=LARGEST, description="best estimate, in the unit of the metric")
    low: float | None = Field(
        default=None, ge=0, le=LARGEST, description="lower end of the interval, null without one"
    )
    high: float | None = Field(
        default=None, gt=0, le=LARGEST, description="upper end of the interval, null without one"
    )
    version: Name | None = Field(
        default=None,
        description="`predictor.version` of the answer; null where it is not known",
    )

    @model_validator(mode="after")
    def _is_an_interval(self) -> Self:
        """Both ends are given, in order, or neither."""
        if (self.low is None) != (self.high is None):
            raise ValueError("an interval has both ends: give low and high, or neither")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low is {self.low:g}, above high, {self.high:g}")
        return self

    def holds(self, measured: float) -> bool | None:
        """Whether a measured value lies in the interval; None where there is none."""
        if self.low is None or self.high is None:
            return None
        return self.low <= measured <= self.high
