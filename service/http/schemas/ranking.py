"""Request and answer of POST /v1/rank."""

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
    """The constraints on a device."""

    model_config = ConfigDict(extra="forbid")

    latency_ms: Most | None = Field(default=None, description="largest latency, milliseconds")
    power_w: Most | None = Field(default=None, description="largest average power, W")
    peak_memory_mib: Most | None = Field(default=None, description="largest peak memory, MiB")
    must_fit: bool = Field(
        default=True,
        description="whether to exclude devices whose memory is not sufficient or not known",
    )
    in_domain_only: bool = Field(
        default=False,
        description="whether to exclude devices where the objective or a limited metric is out of "
        "domain",
    )


class RankIn(BaseModel):
    """One workload on many devices."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [EXAMPLE_RANK, EXAMPLE_COST]}
    )

    workload: WorkloadIn = Field(description="the workload")
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
    software: Software = Field(
        default_factory=Software, description="the software that runs the workload"
    )
    operation: OperationIn = Field(
        default_factory=OperationIn, description="how the devices are operated"
    )
    objective: Objective = Field(
        default="latency_ms",
        description="quantity to minimise; only throughput_per_w, samples per joule, is maximised",
    )
    limits: LimitsIn = Field(default_factory=LimitsIn, description="constraints on the devices")
    risk: Risk = Field(
        default="high",
        description="what is compared with the limits: the upper end of the interval (`high`) or "
        "the best estimate (`value`)",
    )


class AimOut(BaseModel):
    """A value with its prediction interval."""

    value: float = Field(description="best estimate, in `unit`")
    low: float | None = Field(description="lower end of the interval, null without one")
    high: float | None = Field(description="upper end of the interval, null without one")
    coverage: float | None = Field(
        description="share of measured values that the interval should hold, null where not known"
    )
    unit: str = Field(description="unit of the value")


class RankedOut(BaseModel):
    """A device that meets the limits."""

    rank: int = Field(
        description="rank, 1 for the best; devices with equal objectives share a rank"
    )
    device: DeviceOut = Field(description="the device")
    objective: AimOut = Field(description="the objective by which it is ranked")
    overlaps_best: bool = Field(description="whether its interval overlaps that of the best device")
    metrics: dict[str, EstimateOut | None] = Field(
        description="metric -> estimate; null where there is none"
    )
    missing: dict[str, str] = Field(description="metric without an estimate -> the reason")
    fits: FitsOut | None = Field(
        description="whether the memory is sufficient; null where not known"
    )
    margins: dict[str, float] = Field(
        description="limited metric -> limit minus the compared value"
    )
    in_domain: bool = Field(description="true when every metric is in its domain")
    limits: list[str] = Field(
        description="inputs outside the training range and other limits of the answer"
    )


class ExcludedOut(BaseModel):
    """A device that does not meet the limits, or for which that is not known."""

    device: DeviceOut = Field(description="the device")
    reasons: list[str] = Field(description="reasons for the exclusion, one sentence each")


class RankOut(BaseModel):
    """Devices in order, and those left out."""

    objective: Objective = Field(description="the objective that `ranked` is sorted by")
    risk: Risk = Field(description="what was compared with the limits")
    ranked: list[RankedOut] = Field(description="devices that meet the limits, the best first")
    excluded: list[ExcludedOut] = Field(
        description="the other devices, in the order of the request"
    )
    graph: str | None = Field(description="digest of the network's graph")
    predictor: PredictorOut = Field(
        description="the predictor that answered; `adapted_rows` counts measurements of all devices"
    )
