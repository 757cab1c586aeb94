"""Decide whether a workload fits a device's memory, and state the risk."""

from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

if TYPE_CHECKING:
    from forerun.data.device import Device
    from forerun.models.prediction import Estimate

USABLE = 0.92
"""Share of the memory on the spec sheet that runs can use: drivers and error correction take the
rest. nvidia-smi shows 15,109 to 15,360 of a T4's 16,384 MiB, 23,034 of an L4's 24,576 and 81,559 of
an H100's 81,920."""

CALIBRATED = "of runs like those measured, about 5 % take more than `high`"
ENGINEERING = "`high` is an engineering bound; how often runs take more is not known"


class FitsOut(BaseModel):
    """Whether one device's memory is enough."""

    fits: bool = Field(
        description="whether the upper end of the interval fits, which is the safe answer"
    )
    fits_at_value: bool = Field(description="whether the best estimate fits")
    usable_mib: float = Field(
        description="part of the memory on the spec sheet that runs can use, MiB"
    )
    needed_mib: float = Field(description="upper end of the interval of peak_memory_mib, MiB")
    headroom_mib: float = Field(
        description="usable minus needed memory, MiB; negative where memory is short"
    )
    risk: str = Field(description="how often a run takes more than the upper end, in words")


def fits(device: "Device", peak: "Estimate | None", calibrated: bool) -> FitsOut | None:
    """Whether the peak fits; None where the peak or the device's memory is not known.

    Args:
        device: the spec sheet.
        peak: estimate of `peak_memory_mib` on the device.
        calibrated: whether the upper end of the interval is a 95th percentile.
    """
    if peak is None or device.memory_gib is None:
        return None
    usable = USABLE * device.memory_gib * 1024.0
    needed = peak.value if peak.high is None else peak.high
    return FitsOut(
        fits=needed <= usable,
        fits_at_value=peak.value <= usable,
        usable_mib=usable,
        needed_mib=needed,
        headroom_mib=usable - needed,
        risk=CALIBRATED if calibrated else ENGINEERING,
    )
