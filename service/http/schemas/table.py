"""The table of workload classes by device, and the file that names both."""

from typing import Annotated

from pydantic import BaseModel, Field, model_validator

from forerun.models.limit import Grade
from forerun.service.schemas.fields import Name, Strict
from forerun.service.schemas.interval import IntervalOut

MOST_CELLS = 2_000


class WorkloadClassIn(Strict):
    """A class of workloads, described as a pod of it is."""

    name: Name = Field(min_length=1, description="name of the class")
    annotations: dict[Name, str] = Field(
        description="annotations `forerun.dev/*` as those of a pod, which name a workload or a "
        "language model; others have no effect"
    )
    gpus: int | None = Field(
        default=None, ge=1, le=4096, description="GPUs that a pod of the class requests"
    )


class WorkloadClassesIn(Strict):
    """The rows and columns of a table."""

    devices: Annotated[list[Name], Field(min_length=1)] = Field(
        description="names of devices, the columns"
    )
    classes: Annotated[list[WorkloadClassIn], Field(min_length=1)] = Field(
        description="classes of workloads, the rows"
    )

    @model_validator(mode="after")
    def _bounded(self) -> "WorkloadClassesIn":
        if len(self.devices) * len(self.classes) > MOST_CELLS:
            raise ValueError(f"devices times classes may be {MOST_CELLS:,}")
        names = [own.name for own in self.classes]
        if len(set(names)) < len(names):
            raise ValueError("two classes have the same name")
        return self


class CellOut(BaseModel):
    """What a workload of a class costs on a device; null is what is not known."""

    device: str = Field(description="name of the spec sheet")
    latency_ms: IntervalOut | None = Field(
        default=None,
        description="time of one batch, or of one request to a language model, milliseconds",
    )
    throughput_per_s: IntervalOut | None = Field(
        default=None,
        description="samples per second, or requests per second of all devices together",
    )
    peak_memory_mib: IntervalOut | None = Field(default=None, description="memory of a device, MiB")
    fits: bool | None = Field(default=None, description="whether the memory suffices")
    device_count: int = Field(default=1, description="devices that a workload of the class takes")
    grade: Grade | None = Field(default=None, description="trust in `latency_ms`")
    in_domain: bool | None = Field(
        default=None, description="whether the question lies in the training range"
    )
    problem: str | None = Field(default=None, description="why nothing is known")


class RowOut(BaseModel):
    """A class of workloads on all devices."""

    name: str = Field(description="name of the class")
    cells: list[CellOut] = Field(description="one for each device, in the order of `devices`")


class TableOut(BaseModel):
    """Predictions for classes of workloads by device."""

    version: str = Field(description="version of the predictors")
    devices: list[str] = Field(description="names of the devices")
    classes: list[RowOut] = Field(description="classes of workloads, as the file lists them")
