"""Requests and answers of POST /v1/predict and of the lists that the service returns."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag

from forerun.data.described import Described
from forerun.data.device import Device
from forerun.data.level import USUAL, Level
from forerun.data.metrics import METRICS
from forerun.data.software import Software
from forerun.data.workload import NumberFormat, Phase
from forerun.features.readers.operator_json import MAX_RANK, MOST_ATTRIBUTES
from forerun.service.schemas import workload_kinds as kinds
from forerun.service.schemas.answers import BoundDimensionOut
from forerun.service.schemas.fields import (
    BATCH_SIZE,
    Batch,
    Name,
    OneDevice,
    Strict,
    Watts,
    by_form,
    example,
)
from forerun.service.schemas.listings import TrialOut
from forerun.service.schemas.llm.deployment import MOST_DEVICES
from forerun.service.schemas.run_options import InferenceIn, TrainingIn

if TYPE_CHECKING:
    from fastapi.openapi.models import Example

MOST_IN_BATCH = 1_000
EXAMPLE_KERNEL: dict[str, Any] = example("operator")
EXAMPLE: dict[str, Any] = example("kernel")
EXAMPLE_NETWORK: dict[str, Any] = example("network")
EXAMPLE_SHEET: dict[str, Any] = example("sheet")
EXAMPLES: "dict[str, Example]" = {
    "kernel": {"summary": "one operator on a known device", "value": EXAMPLE},
    "network": {"summary": "a whole network, its graph in place", "value": EXAMPLE_NETWORK},
    "sheet": {
        "summary": "a device by its spec sheet",
        "value": {"workload": EXAMPLE_KERNEL, "device": EXAMPLE_SHEET},
    },
    **{
        name: {"summary": summary, "value": example(name)}
        for name, summary in {
            "architecture": "an architecture of a search space",
            "design": "a hardware design by high-level synthesis",
            "deployment": "a language model on an engine",
            "benchmark": "a test of a benchmark suite",
        }.items()
    },
}
Dimension = Annotated[int, Field(ge=1, le=2**40)]
Shape = Annotated[list[Dimension], Field(max_length=MAX_RANK)]
Attribute = int | float | str | Annotated[list[int], Field(max_length=MAX_RANK)]


class OperatorIn(Strict):
    """One operator with its input and output shapes."""

    kind: str = Field(max_length=64)
    """canonical kind, such as linear, conv, softmax"""
    name: str = Field(default="", max_length=256)
    """name of the operator"""
    input_shapes: list[Shape] = Field(max_length=64)
    """shapes of activation inputs, without weights"""
    output_shapes: list[Shape] = Field(max_length=64)
    """shapes of outputs"""
    parameter_elements: int = Field(default=0, ge=0, le=2**50)
    """number of trainable parameters; running statistics of batch normalisation are not counted"""
    attributes: Annotated[dict[str, Attribute], Field(max_length=MOST_ATTRIBUTES)] = Field(
        default_factory=dict
    )
    """attributes such as kernel, stride, groups, width or function"""

    def to_json(self) -> dict[str, Any]:
        """The operator in the format of `OperatorGraph.from_json`."""
        return self.model_dump() | {"name": self.name or self.kind, "inputs": []}


class KernelIn(Strict):
    """One operator."""

    kind: Literal["kernel"]
    """kind of workload: one operator"""
    operator: OperatorIn
    """the operator"""
    precision: NumberFormat = "fp32"
    """number format of the operands"""


class NetworkIn(Strict):
    """A whole network, given by the digest of an uploaded graph or by the graph itself."""

    kind: Literal["network"]
    """kind of workload: a whole network"""
    graph: Annotated[
        Annotated[Name, Tag("name")] | Annotated[dict[str, Any], Tag("content")],
        Discriminator(by_form),
    ]
    """digest from POST /v1/graphs, name of a network (GET /v1/workloads lists them), ORG/MODEL in
    its Hugging Face cache, or a graph in the format forerun.graph/1"""
    batch_size: Batch | None = Field(default=None, description=BATCH_SIZE)
    precision: NumberFormat = "fp32"
    """number format of the run"""
    phase: Phase = "inference"
    """inference, or training: forward, backward and optimizer"""
    training: TrainingIn | None = None
    """how the network is trained, in the phase training; AdamW when absent"""
    inference: InferenceIn | None = None
    """how the forward pass runs, in the phase inference"""


OperatorWorkloadIn = Annotated[KernelIn | NetworkIn, Field(discriminator="kind")]
"""A workload that consists of operators."""

WorkloadIn = Annotated[
    Annotated[KernelIn, Tag("kernel")]
    | Annotated[NetworkIn, Tag("network")]
    | Annotated[kinds.Nb201In, Tag("nb201")]
    | Annotated[kinds.FbnetIn, Tag("fbnet")]
    | Annotated[kinds.OfaIn, Tag("ofa")]
    | Annotated[kinds.DesignIn, Tag("design")]
    | Annotated[kinds.BenchmarkIn, Tag("benchmark")]
    | Annotated[kinds.LlmServingIn, Tag("llm_serving")]
    | Annotated[kinds.LlmDeploymentIn, Tag("llm_deployment")]
    | Annotated[kinds.DiffusionWorkloadIn, Tag("diffusion")],
    Discriminator(
        kinds.form_of,
        custom_error_type="kind_of_workload",
        custom_error_message="`kind` is one of kernel, network, architecture (with the `space` "
        "nb201, fbnet or ofa), design, benchmark, llm_serving, diffusion, llm_deployment",
    ),
]
"""A workload of any kind that runs on one kind of device."""


class OperationIn(Strict):
    """How the device is operated."""

    power_limit_w: Watts | None = None
    """power limit set on each device, W; the device's own limit when absent"""
    device_count: Annotated[int, Field(ge=1, le=MOST_DEVICES)] | None = None
    """devices that a served model or a benchmark runs on, 1 when absent; those of a network follow
    from its training"""


class PredictIn(Strict):
    """A workload, a device, and the software."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [EXAMPLE, EXAMPLE_NETWORK]}
    )

    workload: WorkloadIn
    """the workload"""
    device: OneDevice
    """name of a device, or a spec sheet"""
    software: Software = Field(default_factory=Software)
    """the software that runs the workload"""
    operation: OperationIn = Field(default_factory=OperationIn)
    """how the device is operated"""
    metrics: Annotated[list[Name], Field(max_length=len(METRICS))] | None = Field(
        default=None,
        description="names of the requested metrics; when absent, all that the kind of workload "
        "has, for networks " + ", ".join(m.name for m in METRICS),
    )
    level: Level = USUAL
    explain: bool = False
    """whether the answer has an `attribution`: the estimate divided among the operators of a
    network, or among the loops of a hardware design"""


class BatchIn(Strict):
    """Up to 1,000 requests."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"items": [EXAMPLE, EXAMPLE]}]}
    )

    items: Annotated[list[Any], Field(min_length=1, max_length=MOST_IN_BATCH)]
    """requests as in POST /v1/predict; each gets an answer or a problem"""


class BatchOut(Described):
    """Answers in the order of the requests."""

    items: list[dict[str, Any]]
    """predictions, or problems with their status"""


class GraphOut(Described):
    """A summary of an uploaded graph."""

    digest: str
    """digest of the graph, to be given as `graph` in requests"""
    operators: int
    """number of operators, without views"""
    parameters: int
    """number of trainable parameters; running statistics of batch normalisation are not counted"""
    flops: float
    """FLOPs of one forward pass at `batch_size`"""
    batch_size: int
    """batch size of the stored shapes; others are scaled"""
    source: str
    """format that the graph was read from"""
    unknown_operators: dict[str, int]
    """unknown operator -> count"""
    bound_dimensions: list[BoundDimensionOut]
    """sizes assumed for the dynamic dimensions of the inputs"""


class DevicesOut(Described):
    """Spec sheets of devices."""

    devices: list[Device]
    """spec sheets"""


class ModelOut(Described):
    """A loaded predictor."""

    name: str
    """name of the predictor"""
    version: str
    """hash of its files"""
    created: str
    """day on which the artifact was made, ISO 8601"""
    metrics: list[str]
    """metrics that it predicts"""
    parts: list[str]
    """predictors that it consists of, in order of preference"""
    card: str
    """model card in Markdown"""


class ModelsOut(Described):
    """The loaded predictors."""

    models: list[ModelOut]
    """predictors in use"""
    trial: TrialOut | None = None
    """the candidate on trial next to them; null without one"""


class EntryOut(Described):
    """One predictor's scores in one task of the leaderboard; a missing score is null."""

    dataset: str
    """name of the dataset"""
    task: str
    """task, as protocol/part: rows that are scored together"""
    protocol: str | None
    """evaluation protocol of the task"""
    device: str | None
    """device of the task; null where there are several"""
    metric: str
    """predicted metric"""
    predictor: str
    """name of the predictor"""
    kind: Literal["ours", "baseline", "published"]
    """origin of the score"""
    score: str
    """name of the score that ranks this task"""
    value: float | None
    """value of that score"""
    standard_error: float | None
    """standard error of the value over seeds; null for one seed"""
    shots: int
    """support rows of the device under test, for few-shot adaptation"""
    seeds: int | None
    """averaged fits, or draws of support rows"""
    n: int | None
    """number of scored rows"""
    mape: float | None
    """mean absolute percentage error, percent"""
    median_ape: float | None
    """median absolute percentage error, percent"""
    spearman: float | None
    """rank correlation, -1 to 1"""
    coverage_90: float | None
    """coverage of 90 % intervals, percent"""
    mean_interval_ratio: float | None
    """mean of the interval's high over low"""
    further: dict[str, float | None]
    """name of a further score -> its value"""
    citation: str | None
    """source of a published figure"""
    over: str | None
    """rows that a cited figure averages over"""
    command: str | None
    """reproduces this row; null for a cited figure"""
    date: str | None
    """date of the evaluation, ISO 8601"""
    commit: str | None
    """commit of the code that evaluated it"""
    digest: str | None
    """hash of the dataset's bundle; null for a cited figure"""
    environment: dict[str, str] = Field(default_factory=dict)
    """python, platform and packages -> version"""
    rank: int | None
    """rank among entries scored on the same rows; null for others"""
    note: str
    """reason for the missing rank; empty where there is a rank"""


class LeaderboardOut(Described):
    """Stored results of evaluations; no evaluation is run."""

    entries: list[EntryOut]
    """entries, grouped by task"""


class StatusOut(Described):
    """Whether the service is alive."""

    status: str
    """status of the service: ok"""
