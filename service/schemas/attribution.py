"""What an answer is made of: operators of a network, or loops of a hardware design."""

from typing import Final, Literal

from pydantic import BaseModel, Field

REST: Final = "rest"
"""Group of the part that stands for all smaller ones."""


class AttributedOut(BaseModel):
    """One part of an answer."""

    label: str = Field(
        description="the part: operators with their name and shapes at the batch size of the "
        "graph (several joined by + run as one fused kernel), or the directives of a loop"
    )
    group: str = Field(
        description="operator class, as in `breakdown_ms`; host for the time that the device "
        "waits for the host; loop for the directives of a loop; rest for the last part, where it "
        "stands for smaller ones"
    )
    count: float = Field(description="runs of it in one pass")
    value: float = Field(
        description="its contribution, in the unit of the metric, or as a factor; see `form`"
    )


class AttributionOut(BaseModel):
    """An estimate divided among its parts, exactly up to rounding."""

    metric: str = Field(description="metric whose estimate is divided")
    form: Literal["sum", "product"] = Field(
        description="sum: the values add up to the estimate, and none is negative; product: the "
        "estimate is `base` times all values"
    )
    base: float = Field(
        description="what the parts start from: 0 for a sum; for a product, the estimate for the "
        "design without directives"
    )
    parts: list[AttributedOut] = Field(
        description="the parts, the largest contribution first; smaller ones are added up in the "
        "last"
    )
    kernels: float | None = Field(
        description="sum of the times of single operators before corrections of the whole "
        "network, in the unit of the metric; null where operators have no times of their own"
    )
    correction: float | None = Field(
        description="the estimate without `host` over `kernels`: what learned corrections of the "
        "whole network, adaptation and a power limit make of it; already in the values of `parts`"
    )
