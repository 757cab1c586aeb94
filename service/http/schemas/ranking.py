"""Request and answer of POST /v1/rank."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from forerun.data.software import Software
from forerun.service.schemas.answers import Objective, Risk
from forerun.service.schemas.fields import Name, OneDevice
from forerun.service.schemas.prediction import (
    EXAMPLE_KERNEL,
    EXAMPLE_NETWORK,
    OperationIn,
    OperatorWorkloadIn,
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
Most = Annotated[float, Field(ge=1e-9, le=1e15)]
Price = Annotated[float, Field(ge=0, le=1e9)]


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

    workload: OperatorWorkloadIn = Field(description="the workload")
    devices: list[OneDevice] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_RANKED,
        description="names of devices, or spec sheets; the whole catalogue when absent",
    )
    prices_per_hour: dict[Name, Price] = Field(
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
