"""Request and answer of POST /v1/power/sweep."""

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

    workload: WorkloadIn = Field(description="the workload")
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


class LimitedOut(BaseModel):
    """The workload at one power limit."""

    limit_w: float = Field(description="power limit of the device, W")
    latency_ms: AimOut = Field(description="wall time of one run, milliseconds")
    power_w: AimOut = Field(description="average power, W")
    energy_j: AimOut = Field(description="energy of one run, J")
    energy_per_sample_j: AimOut = Field(description="energy of a run divided by its samples, J")
    slow_down: float = Field(description="time over that at the highest limit, less 1")
    saving: float = Field(description="share of the energy at the highest limit that is saved")
    on_front: bool = Field(
        description="whether no other limit is both faster and takes less energy"
    )


class AdviceOut(BaseModel):
    """An advised power limit."""

    limit_w: float = Field(description="power limit, W")
    slow_down: float = Field(description="time over that at the highest limit, less 1")
    saving: float = Field(description="share of the energy at the highest limit that is saved")


class SweepOut(BaseModel):
    """Time, power and energy by power limit."""

    device: DeviceOut = Field(description="the device")
    tdp_w: float | None = Field(
        description="design power, W; null where the sheet does not give it"
    )
    idle_w: float | None = Field(
        description="power of the idle device, W; null where the sheet does not give it"
    )
    peak_power_w: None = Field(
        description="highest power over a short window, W; it is never known"
    )
    missing: dict[str, str] = Field(description="fact that is not known -> the reason")
    samples: int = Field(description="number of samples in one run")
    runs: list[LimitedOut] = Field(description="one run per limit, by rising limit")
    least_energy: AdviceOut = Field(description="the limit at which a run takes the least energy")
    slow_down: float = Field(
        description="slowdown that `within_slow_down` may cost, as in the request"
    )
    within_slow_down: AdviceOut = Field(
        description="the limit of least energy among those whose slowdown is at most `slow_down`"
    )
    limits: list[str] = Field(
        description="inputs outside the training range and other limits of the answer"
    )
    graph: str | None = Field(description="digest of the network's graph")
    predictor: PredictorOut = Field(description="the predictor that answered")
    picture: str | None = Field(description="energy over time as an SVG, where it was requested")
