"""What goes over HTTP when power limits are swept."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from forerun.data.software import Software
from forerun.service.answers.power_sweep import SLOW_DOWN
from forerun.service.http.schemas.ranking import AimOut, OneDevice
from forerun.service.schemas.prediction import EXAMPLE_NETWORK, DeviceOut, PredictorOut, WorkloadIn

MOST_LIMITS = 200
EXAMPLE_SWEEP: dict[str, Any] = {
    "workload": EXAMPLE_NETWORK["workload"],
    "device": "rtx-4090",
    "limits_w": [200, 250, 300, 350, 400, 450],
    "slow_down": 0.1,
}
Watts = Annotated[float, Field(gt=0, le=1e5)]


class SweepIn(BaseModel):
    """One workload on one device, at several power limits."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EXAMPLE_SWEEP]})

    workload: WorkloadIn = Field(description="what is run")
    device: OneDevice = Field(description="name of a device, or a spec sheet")
    software: Software = Field(default_factory=Software, description="how it is run")
    limits_w: list[Watts] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_LIMITS,
        description="power limits, W; thirteen from 40 % of the design power to all when absent",
    )
    slow_down: float = Field(
        default=SLOW_DOWN,
        ge=0,
        le=10,
        description="share of the fastest time that `within_slow_down` may cost",
    )
    picture: bool = Field(default=False, description="whether to draw energy over time as SVG")


class LimitedOut(BaseModel):
    """The workload at one limit."""

    limit_w: float = Field(description="power limit of the device, W")
    latency_ms: AimOut = Field(description="wall time of one run, milliseconds")
    power_w: AimOut = Field(description="average power, W")
    energy_j: AimOut = Field(description="energy of one run, J")
    energy_per_sample_j: AimOut = Field(description="energy of a run over its samples, J")
    slow_down: float = Field(description="time over that at the highest limit, less 1")
    saving: float = Field(description="share of the energy at the highest limit that is saved")
    on_front: bool = Field(description="no other limit is both faster and cheaper")


class AdviceOut(BaseModel):
    """A limit to set."""

    limit_w: float = Field(description="power limit, W")
    slow_down: float = Field(description="time over that at the highest limit, less 1")
    saving: float = Field(description="share of the energy at the highest limit that is saved")


class SweepOut(BaseModel):
    """Time, power and energy by power limit."""

    device: DeviceOut = Field(description="the device that was taken")
    tdp_w: float | None = Field(description="design power, W; null where the sheet is silent")
    idle_w: float | None = Field(description="power when idle, W; null where the sheet is silent")
    peak_power_w: None = Field(description="highest power over a short window, W: not known")
    missing: dict[str, str] = Field(description="what is not known -> why")
    samples: int = Field(description="in one run")
    runs: list[LimitedOut] = Field(description="by rising limit")
    least_energy: AdviceOut = Field(description="limit at which a run takes the least energy")
    slow_down: float = Field(description="what `within_slow_down` may cost, as it was asked")
    within_slow_down: AdviceOut = Field(
        description="limit of least energy among those at most so much slower than the fastest"
    )
    limits: list[str] = Field(description="what to know about the answers")
    graph: str | None = Field(description="digest of the network's graph")
    predictor: PredictorOut = Field(description="who answered")
    picture: str | None = Field(description="energy over time as SVG, where it was asked for")
