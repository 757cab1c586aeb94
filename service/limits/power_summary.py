"""What stands beside power: figures of the sheet, energy of a sample, what was never measured."""

from typing import Any

from pydantic import BaseModel, Field

from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.models.prediction import Estimate

NO_PEAK = "not measured: the data holds averages over whole runs, no window"
NO_IDLE = "the sheet does not give it"
NO_ENERGY = "energy_j is not known"


class PerSampleOut(BaseModel):
    """Energy of one sample."""

    value: float = Field(description="best estimate, in `unit`")
    low: float | None = Field(description="lower end of the interval, null without one")
    high: float | None = Field(description="upper end of the interval, null without one")
    coverage: float | None = Field(description="share of truths that it holds, null: not known")
    unit: str = Field(description="J")


class PowerFactsOut(BaseModel):
    """Figures about power that no predictor answers."""

    idle_w: float | None = Field(description="of the device when idle, by its sheet, W")
    tdp_w: float | None = Field(description="design power of the device, by its sheet, W")
    power_limit_w: float | None = Field(description="limit asked for, W; null for its own")
    peak_power_w: None = Field(description="highest over a short window, W: never known")
    energy_per_sample_j: PerSampleOut | None = Field(description="energy_j over samples, J")
    missing: dict[str, str] = Field(description="what is not known -> why")


def power_facts(query: Query, energy: Estimate | None) -> dict[str, Any]:
    """Fields of `PowerFactsOut`.

    Args:
        query: the device and how it is operated.
        energy: `energy_j` of one run.
    """
    missing = {"peak_power_w": NO_PEAK}
    if query.device.idle_w is None:
        missing["idle_w"] = NO_IDLE
    if energy is None:
        missing["energy_per_sample_j"] = NO_ENERGY
    return {
        "idle_w": query.device.idle_w,
        "tdp_w": query.device.tdp_w,
        "power_limit_w": query.operation.power_limit_w,
        "peak_power_w": None,
        "energy_per_sample_j": None if energy is None else per_sample(energy, samples_of(query)),
        "missing": missing,
    }


def samples_of(query: Query) -> int:
    """In one run."""
    return query.workload.batch_size if isinstance(query.workload, Network) else 1


def per_sample(energy: Estimate, samples: int) -> dict[str, Any]:
    """Fields of `PerSampleOut`."""
    low, high = (None if end is None else end / samples for end in (energy.low, energy.high))
    ends = {"value": energy.value / samples, "low": low, "high": high}
    return {**ends, "coverage": energy.coverage, "unit": "J"}
