"""Request and answer of POST /v1/power/sweep."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from forerun.data.software import Software
from forerun.service.answers.power_sweep import SLOW_DOWN
from forerun.service.schemas.fields import OneDevice, Watts
from forerun.service.schemas.prediction import EXAMPLE_NETWORK, OperatorWorkloadIn

MOST_LIMITS = 200
EXAMPLE_SWEEP: dict[str, Any] = {
    "workload": EXAMPLE_NETWORK["workload"],
    "device": "rtx-4090",
    "limits_w": [200, 250, 300, 350, 400, 450],
    "slow_down": 0.1,
}


class SweepIn(BaseModel):
    """One workload on one device, at several power limits."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EXAMPLE_SWEEP]})

    workload: OperatorWorkloadIn = Field(description="the workload")
    device: OneDevice = Field(description="name of a device, or a spec sheet")
    software: Software = Field(
        default_factory=Software, description="the software that runs the workload"
    )
    limits_w: list[Watts] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_LIMITS,
        description="power limits, W; when absent, thirteen from 40 to 100 % of the design power",
    )
    slow_down: float = Field(
        default=SLOW_DOWN,
        ge=0,
        le=10,
        description="slowdown that `within_slow_down` may cost, as a share of the fastest time",
    )
    picture: bool = Field(default=False, description="whether to draw energy over time as an SVG")
