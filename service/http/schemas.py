"""Requests and answers that only HTTP uses, as pydantic models."""

import json
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from forerun.data.level import USUAL, Level
from forerun.data.software import Software
from forerun.models.limit import Grade
from forerun.service.answers.power_sweep import SLOW_DOWN
from forerun.service.schemas.answers import IntervalOut, Objective, Risk
from forerun.service.schemas.fields import Name, OneDevice, Strict, Watts, example
from forerun.service.schemas.prediction import (
    EXAMPLE,
    OperationIn,
    OperatorWorkloadIn,
)

MOST_RANKED = 200
EXAMPLE_RANK: dict[str, Any] = example("rank")
EXAMPLE_COST: dict[str, Any] = example("rank_by_cost")
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
    devices: Annotated[list[OneDevice], Field(min_length=1, max_length=MOST_RANKED)] | None = Field(
        default=None,
        description="names of devices, or spec sheets; the whole catalogue when absent",
    )
    prices_per_hour: Annotated[dict[Name, Price], Field(max_length=MOST_RANKED)] = Field(
        default_factory=dict,
        description="device -> price of an hour, in any currency, for the objective `cost`; list "
        "prices in USD without it",
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
    level: Level = USUAL
    risk: Risk = Field(
        default="high",
        description="what is compared with the limits: the upper end of the interval (`high`) or "
        "the best estimate (`value`)",
    )


MOST_LIMITS = 200
EXAMPLE_SWEEP: dict[str, Any] = example("power_sweep")


class SweepIn(BaseModel):
    """One workload on one device, at several power limits."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EXAMPLE_SWEEP]})

    workload: OperatorWorkloadIn = Field(description="the workload")
    device: OneDevice = Field(description="name of a device, or a spec sheet")
    software: Software = Field(
        default_factory=Software, description="the software that runs the workload"
    )
    limits_w: Annotated[list[Watts], Field(min_length=1, max_length=MOST_LIMITS)] | None = Field(
        default=None,
        description="power limits, W; when absent, thirteen from 40 to 100 % of the design power",
    )
    slow_down: Annotated[float, Field(ge=0, le=10)] = Field(
        default=SLOW_DOWN,
        description="slowdown that `within_slow_down` may cost, as a share of the fastest time",
    )
    level: Level = USUAL
    picture: bool = Field(default=False, description="whether to draw energy over time as an SVG")


EXAMPLE_INFERENCE: dict[str, Any] = {
    "inputs": [
        {"name": "question", "datatype": "BYTES", "shape": [1], "data": [json.dumps(EXAMPLE)]}
    ]
}


Size = Annotated[int, Field(ge=0, le=1_000_000)]


class _Open(BaseModel):
    """The protocol lets clients and servers add parameters of their own."""

    model_config = ConfigDict(extra="ignore")


class TensorIn(_Open):
    """A tensor of a request."""

    name: str = Field(description="name of the input")
    datatype: str = Field(description="type of the elements, such as BYTES")
    shape: list[Size] = Field(description="sizes of the dimensions", max_length=8)
    data: list[Any] = Field(description="the elements, which may be nested as the shape is")


class WantedIn(_Open):
    """An output that a request asks for."""

    name: str = Field(description="name of the output")


class InferIn(_Open):
    """A request for an inference."""

    model_config = ConfigDict(extra="ignore", json_schema_extra={"examples": [EXAMPLE_INFERENCE]})

    id: str | None = Field(default=None, description="identifier, which is returned")
    inputs: list[TensorIn] = Field(description="the inputs", min_length=1, max_length=16)
    outputs: list[WantedIn] | None = Field(
        default=None, description="names of the outputs; all where none are given", max_length=64
    )


class TensorOut(BaseModel):
    """A tensor of an answer; null stands for what is not known."""

    name: str = Field(description="name of the output")
    datatype: str = Field(description="type of the elements: FP64, or BYTES for text")
    shape: list[int] = Field(description="sizes of the dimensions")
    data: list[float | str | None] = Field(description="the elements")


class InferOut(BaseModel):
    """The answer to a request for an inference."""

    model_name: str = Field(description="the model")
    model_version: str = Field(description="version of the predictors in use")
    id: str | None = Field(description="identifier of the request")
    outputs: list[TensorOut] = Field(description="the outputs")


class TensorMetadataOut(BaseModel):
    """Name and type of a tensor; -1 is a dimension of any size."""

    name: str = Field(description="name of the tensor")
    datatype: str = Field(description="type of the elements")
    shape: list[int] = Field(description="sizes of the dimensions")


class ModelMetadataOut(BaseModel):
    """What a model takes and gives."""

    name: str = Field(description="the model")
    versions: list[str] = Field(description="the version that answers")
    platform: str = Field(description="what answers")
    inputs: list[TensorMetadataOut] = Field(description="inputs")
    outputs: list[TensorMetadataOut] = Field(description="outputs")


class ServerMetadataOut(BaseModel):
    """The server."""

    name: str = Field(description="name of the server")
    version: str = Field(description="its version")
    extensions: list[str] = Field(description="extensions of the protocol: none")


class LiveOut(BaseModel):
    """Whether the process is alive."""

    live: bool = Field(description="true")


class ReadinessOut(BaseModel):
    """Whether the server, or a model, answers questions."""

    ready: bool = Field(description="true; another HTTP status otherwise")
    name: str | None = Field(default=None, description="the model; null for the server")


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
