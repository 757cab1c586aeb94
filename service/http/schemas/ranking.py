"""What goes over HTTP when devices are ranked."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from forerun.data.device import Device
from forerun.data.software import Software
from forerun.service.answers.ranking import Objective, Risk
from forerun.service.limits.memory_fit import FitsOut
from forerun.service.schemas.prediction import (
    EXAMPLE_KERNEL,
    EXAMPLE_NETWORK,
    DeviceOut,
    EstimateOut,
    Name,
    OperationIn,
    PredictorOut,
    WorkloadIn,
    by_form,
)

MOST_RANKED = 200
EXAMPLE_RANK: dict[str, Any] = {
    "workload": EXAMPLE_NETWORK["workload"],
    "devices": ["l4", "a100-pcie-80gb", "rtx-4090"],
    "objective": "energy_j",
    "limits": {"latency_ms": 50, "power_w": 400},
}
EXAMPLE_COST: dict[str, Any] = {
    "workload": EXAMPLE_KERNEL,
    "devices": ["l4", "t4"],
    "prices_per_hour": {"l4": 0.71, "t4": 0.35},
    "objective": "cost",
    "risk": "value",
}
OneDevice = Annotated[
    Annotated[Name, Tag("name")] | Annotated[Device, Tag("content")], Discriminator(by_form)
]
Most = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class LimitsIn(BaseModel):
    """What a device must keep to."""

    model_config = ConfigDict(extra="forbid")

    latency_ms: Most | None = Field(default=None, description="most of it, milliseconds")
    power_w: Most | None = Field(default=None, description="most average power, W")
    peak_memory_mib: Most | None = Field(default=None, description="most of it, MiB")
    must_fit: bool = Field(
        default=True, description="leave out devices whose memory is not enough, or not known"
    )
    in_domain_only: bool = Field(
        default=False, description="leave out where the objective or a limited metric is not"
    )


class RankIn(BaseModel):
    """One workload, many devices."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [EXAMPLE_RANK, EXAMPLE_COST]}
    )

    workload: WorkloadIn = Field(description="what is run")
    devices: list[OneDevice] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_RANKED,
        description="names of devices, or spec sheets; the whole catalogue when absent",
    )
    prices_per_hour: dict[Name, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        default_factory=dict,
        max_length=MOST_RANKED,
        description="device -> price of an hour, in any currency; for the objective `cost`",
    )
    software: Software = Field(default_factory=Software, description="how it is run")
    operation: OperationIn = Field(
        default_factory=OperationIn, description="how devices are operated"
    )
    objective: Objective = Field(
        default="latency_ms",
        description="what is made least; throughput_per_w, samples a joule, is made most",
    )
    limits: LimitsIn = Field(default_factory=LimitsIn, description="what devices must keep to")
    risk: Risk = Field(
        default="high",
        description="limits are judged by the upper end of intervals, or by best estimates",
    )


class AimOut(BaseModel):
    """What devices are ranked by."""

    value: float = Field(description="best estimate, in `unit`")
    low: float | None = Field(description="lower end of the interval, null without one")
    high: float | None = Field(description="upper end of the interval, null without one")
    coverage: float | None = Field(description="share of truths that it holds, null: not known")
    unit: str = Field(description="of the objective")


class RankedOut(BaseModel):
    """A device that meets the limits."""

    rank: int = Field(description="1 is best; devices with equal objectives share one")
    device: DeviceOut = Field(description="the device that was taken")
    objective: AimOut = Field(description="what it is ranked by")
    overlaps_best: bool = Field(description="whether its interval overlaps that of the first")
    metrics: dict[str, EstimateOut | None] = Field(description="metric -> estimate, or null")
    missing: dict[str, str] = Field(description="metric without an answer -> why")
    fits: FitsOut | None = Field(description="whether the memory is enough; null: not known")
    margins: dict[str, float] = Field(description="limited metric -> limit less what is judged")
    in_domain: bool = Field(description="true when every metric is in its domain")
    limits: list[str] = Field(description="which inputs are not, and how far")


class ExcludedOut(BaseModel):
    """A device that does not meet the limits, or of which too little is known."""

    device: DeviceOut = Field(description="the device")
    reasons: list[str] = Field(description="a line each")


class RankOut(BaseModel):
    """Devices in order, and those left out."""

    objective: Objective = Field(description="what `ranked` is in order of")
    risk: Risk = Field(description="what limits were judged by")
    ranked: list[RankedOut] = Field(description="those that meet the limits, the best first")
    excluded: list[ExcludedOut] = Field(description="the others, in the order they were given")
    graph: str | None = Field(description="digest of the network's graph")
    predictor: PredictorOut = Field(
        description="who answered; its measurements of all devices together"
    )
