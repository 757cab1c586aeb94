"""Facts that accompany predicted power: figures of the spec sheet and energy per sample."""

from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from forerun.data.workload import Network
from forerun.service.schemas.interval import IntervalOut

if TYPE_CHECKING:
    from forerun.data.query import Query
    from forerun.models.prediction import Estimate

NO_PEAK = "not measured: the data holds averages over whole runs, no window"
NO_IDLE = "the sheet does not give it"
NO_ENERGY = "energy_j is not known, or was not asked for"


class PowerFactsOut(BaseModel):
    """Figures about power that no predictor answers."""

    idle_w: float | None = Field(description="power of the idle device, by its spec sheet, W")
    tdp_w: float | None = Field(description="design power of the device, by its spec sheet, W")
    power_limit_w: float | None = Field(
        description="requested power limit, W; null for the device's own limit"
    )
    peak_power_w: None = Field(
        description="highest power over a short window, W; it is never known"
    )
    energy_per_sample_j: IntervalOut | None = Field(
        description="energy_j divided by the samples of a run, J"
    )
    missing: dict[str, str] = Field(description="fact that is not known -> the reason")


def power_facts(query: "Query", energy: "Estimate | None") -> PowerFactsOut:
    """Figures of the spec sheet, and the energy per sample.

    Args:
        query: the device and how it is operated.
        energy: estimate of `energy_j` for one run.
    """
    missing = {"peak_power_w": NO_PEAK}
    if query.device.idle_w is None:
        missing["idle_w"] = NO_IDLE
    if energy is None:
        missing["energy_per_sample_j"] = NO_ENERGY
    return PowerFactsOut(
        idle_w=query.device.idle_w,
        tdp_w=query.device.tdp_w,
        power_limit_w=query.operation.power_limit_w,
        peak_power_w=None,
        energy_per_sample_j=None if energy is None else per_sample(energy, samples_of(query)),
        missing=missing,
    )


def samples_of(query: "Query") -> int:
    """The number of samples in one run."""
    return query.workload.batch_size if isinstance(query.workload, Network) else 1


def per_sample(energy: "Estimate", samples: int) -> IntervalOut:
    """The energy of one run divided by its samples."""
    low, high = (None if end is None else end / samples for end in (energy.low, energy.high))
    value = energy.value / samples
    return IntervalOut(value=value, low=low, high=high, coverage=energy.coverage, unit="J")
