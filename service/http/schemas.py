"""Requests and answers that only HTTP uses, as pydantic models."""

import json
from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from forerun.data.described import Described
from forerun.data.level import USUAL, Level
from forerun.data.software import Software
from forerun.models.limit import Grade
from forerun.service.answers.ranking import SLOW_DOWN
from forerun.service.schemas.answers import IntervalOut, Objective, Risk
from forerun.service.schemas.fields import Name, OneDevice, Strict, Watts, example
from forerun.service.schemas.prediction import EXAMPLE, OperationIn, OperatorWorkloadIn

MOST_RANKED = 200
EXAMPLE_RANK: dict[str, Any] = example("rank")
EXAMPLE_COST: dict[str, Any] = example("rank_by_cost")
Most = Annotated[float, Field(ge=1e-9, le=1e15)]
Price = Annotated[float, Field(ge=0, le=1e9)]


class LimitsIn(Strict):
    """The constraints on a device."""

    latency_ms: Most | None = None
    """largest latency, milliseconds"""
    power_w: Most | None = None
    """largest average power, W"""
    peak_memory_mib: Most | None = None
    """largest peak memory, MiB"""
    must_fit: bool = True
    """whether to exclude devices whose memory is not sufficient or not known"""
    in_domain_only: bool = False
    """whether to exclude devices where the objective or a limited metric is out of domain"""


class RankIn(Described):
    """One workload on many devices."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [EXAMPLE_RANK, EXAMPLE_COST]}
    )

    workload: OperatorWorkloadIn
    """the workload"""
    devices: Annotated[list[OneDevice], Field(min_length=1, max_length=MOST_RANKED)] | None = None
    """names of devices, or spec sheets; the whole catalogue when absent"""
    prices_per_hour: Annotated[dict[Name, Price], Field(max_length=MOST_RANKED)] = Field(
        default_factory=dict
    )
    """device -> price of an hour, in any currency, for the objective `cost`; list prices in USD
    without it"""
    software: Software = Field(default_factory=Software)
    """the software that runs the workload"""
    operation: OperationIn = Field(default_factory=OperationIn)
    """how the devices are operated"""
    objective: Objective = "latency_ms"
    """quantity to minimise; only throughput_per_w, samples per joule, is maximised"""
    limits: LimitsIn = Field(default_factory=LimitsIn)
    """constraints on the devices"""
    level: Level = USUAL
    risk: Risk = "high"
    """what is compared with the limits: the upper end of the interval (`high`) or the best estimate
    (`value`)"""


MOST_LIMITS = 200
EXAMPLE_SWEEP: dict[str, Any] = example("power_sweep")


class SweepIn(Described):
    """One workload on one device, at several power limits."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EXAMPLE_SWEEP]})

    workload: OperatorWorkloadIn
    """the workload"""
    device: OneDevice
    """name of a device, or a spec sheet"""
    software: Software = Field(default_factory=Software)
    """the software that runs the workload"""
    limits_w: Annotated[list[Watts], Field(min_length=1, max_length=MOST_LIMITS)] | None = None
    """power limits, W; when absent, thirteen from 40 to 100 % of the TDP"""
    slow_down: Annotated[float, Field(ge=0, le=10)] = SLOW_DOWN
    """slowdown allowed for `within_slow_down`, as a share of the fastest time"""
    level: Level = USUAL
    picture: bool = False
    """whether to draw energy over time as an SVG"""


EXAMPLE_INFERENCE: dict[str, Any] = {
    "inputs": [
        {"name": "question", "datatype": "BYTES", "shape": [1], "data": [json.dumps(EXAMPLE)]}
    ]
}


Size = Annotated[int, Field(ge=0, le=1_000_000)]


class TensorIn(Described):
    """A tensor of a request; like all objects of the protocol, it may have parameters."""

    name: str
    """name of the input"""
    datatype: str
    """type of the elements, such as BYTES"""
    shape: list[Size] = Field(max_length=8)
    """sizes of the dimensions"""
    data: list[Any]
    """the elements, which may be nested according to the shape"""


class WantedIn(Described):
    """An output that a request asks for."""

    name: str
    """name of the output"""


class InferIn(Described):
    """A request for an inference."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE_INFERENCE]})

    id: str | None = None
    """identifier, which is returned"""
    inputs: list[TensorIn] = Field(min_length=1, max_length=16)
    """the inputs"""
    outputs: list[WantedIn] | None = Field(default=None, max_length=64)
    """names of the outputs; all where none are given"""


class TensorOut(Described):
    """A tensor of an answer; null stands for what is not known."""

    name: str
    """name of the output"""
    datatype: str
    """type of the elements: FP64, or BYTES for text"""
    shape: list[int]
    """sizes of the dimensions"""
    data: list[float | str | None]
    """the elements"""


class InferOut(Described):
    """The answer to a request for an inference."""

    model_name: str
    """the model"""
    model_version: str
    """version of the predictors in use"""
    id: str | None
    """identifier of the request"""
    outputs: list[TensorOut]
    """the outputs"""


class TensorMetadataOut(Described):
    """Name and type of a tensor; -1 is a dimension of any size."""

    name: str
    """name of the tensor"""
    datatype: str
    """type of the elements"""
    shape: list[int]
    """sizes of the dimensions"""


class ModelMetadataOut(Described):
    """Inputs and outputs of a model."""

    name: str
    """the model"""
    versions: list[str]
    """the version that answers"""
    platform: str
    """what answers"""
    inputs: list[TensorMetadataOut]
    """inputs"""
    outputs: list[TensorMetadataOut]
    """outputs"""


class ServerMetadataOut(Described):
    """The server."""

    name: str
    """name of the server"""
    version: str
    """its version"""
    extensions: list[str]
    """extensions of the protocol: none"""


class LiveOut(Described):
    """Whether the process is alive."""

    live: bool
    """true"""


class ReadinessOut(Described):
    """Whether the server, or a model, answers questions."""

    ready: bool
    """true; another HTTP status otherwise"""
    name: str | None = None
    """the model; null for the server"""


MOST_CELLS = 2_000


class WorkloadClassIn(Strict):
    """A class of workloads, described as a pod of it is."""

    name: Name = Field(min_length=1)
    """name of the class"""
    annotations: dict[Name, str]
    """annotations `forerun.dev/*` as those of a pod, which name a workload or a language model;
    others have no effect"""
    gpus: int | None = Field(default=None, ge=1, le=4096)
    """GPUs that a pod of the class requests"""


class WorkloadClassesIn(Strict):
    """The rows and columns of a table."""

    devices: Annotated[list[Name], Field(min_length=1)]
    """names of devices, the columns"""
    classes: Annotated[list[WorkloadClassIn], Field(min_length=1)]
    """classes of workloads, the rows"""

    @model_validator(mode="after")
    def _bounded(self) -> "WorkloadClassesIn":
        if len(self.devices) * len(self.classes) > MOST_CELLS:
            raise ValueError(f"devices times classes may be {MOST_CELLS:,}")
        names = [own.name for own in self.classes]
        if len(set(names)) < len(names):
            raise ValueError("two classes have the same name")
        return self


class CellOut(Described):
    """What a workload of a class costs on a device; unknown values are null."""

    device: str
    """name of the spec sheet"""
    latency_ms: IntervalOut | None = None
    """time of one batch, or of one request to a language model, milliseconds"""
    throughput_per_s: IntervalOut | None = None
    """samples per second, or requests per second of all devices together"""
    peak_memory_mib: IntervalOut | None = None
    """memory of a device, MiB"""
    fits: bool | None = None
    """whether the memory suffices"""
    device_count: int = 1
    """devices that a workload of the class takes"""
    grade: Grade | None = None
    """trust in `latency_ms`"""
    in_domain: bool | None = None
    """whether the question lies in the training range"""
    problem: str | None = None
    """why nothing is known"""


class RowOut(Described):
    """A class of workloads on all devices."""

    name: str
    """name of the class"""
    cells: list[CellOut]
    """one for each device, in the order of `devices`"""


class TableOut(Described):
    """Predictions for classes of workloads by device."""

    version: str
    """version of the predictors"""
    devices: list[str]
    """names of the devices"""
    classes: list[RowOut]
    """classes of workloads, as the file lists them"""
