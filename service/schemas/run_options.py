"""Options of a run of a network: those of Python, and of a model that is uploaded over HTTP."""

from typing import Literal

from pydantic import BaseModel, Field

from forerun.data.device import Device
from forerun.data.graph import OperatorGraph
from forerun.data.query import Query
from forerun.data.software import Layout, Runtime, Software
from forerun.data.workload import (
    Attention,
    FrozenFormat,
    InferenceSetup,
    LoraTargets,
    Network,
    NumberFormat,
    Optimizer,
    Phase,
    TrainingSetup,
)
from forerun.features.readers.input_sizes import MAX_SIZE, InputSizes, parse_shapes
from forerun.service.schemas.fields import LONGEST_NAME, Watts
from forerun.service.schemas.prediction import BATCH_SIZE, LARGEST_BATCH
from forerun.service.schemas.training_options import (
    ATTENTION,
    INFERENCE_OPTIONS,
    LARGEST_RANK,
    LONGEST_CACHE,
    MOST_DEVICES,
    MOST_SEGMENTS,
    OPTIONS,
    set_ups_of,
)
from forerun.service.schemas.workloads import operation_of, usual_runtime

IMAGE_SIZE = "size of free heights and widths, pixels; 224 when absent"
SHAPE = (
    "shape of an input as name=1x3x640x640 or name:1x3x640x640; ? leaves a dimension open; may be "
    "repeated"
)
MOST_SHAPES = 256


class RunIn(BaseModel):
    """The software, and the options of training or inference."""

    batch_size: int | None = Field(default=None, ge=1, le=LARGEST_BATCH, description=BATCH_SIZE)
    precision: NumberFormat = Field(default="fp32", description="number format of the run")
    phase: Phase = Field(default="inference", description="inference or training")
    runtime: Runtime | None = Field(
        default=None,
        description="execution mode; when absent, onnxruntime for inference on processors, "
        "else eager",
    )
    layout: Layout = Field(default="nchw", description="layout of image tensors")
    threads: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="computing threads on a processor; those of the training rows when absent",
    )
    instances: int = Field(
        default=1,
        ge=1,
        le=1024,
        description="instances of the run at once on one processor, each with its own threads",
    )
    sequence_length: int | None = Field(
        default=None,
        ge=1,
        le=2**20,
        description="size of free sequence dimensions; 128 when absent",
    )
    image_size: int | None = Field(default=None, ge=1, le=MAX_SIZE, description=IMAGE_SIZE)
    shape: list[str] = Field(default=[], max_length=MOST_SHAPES, description=SHAPE)
    optimizer: Optimizer | None = Field(
        default=None, description="optimizer of training; AdamW when absent"
    )
    checkpoint_segments: int | None = Field(
        default=None, ge=0, le=MOST_SEGMENTS, description="training: segments that are recomputed"
    )
    accumulation: int | None = Field(
        default=None, ge=1, le=LARGEST_BATCH, description="training: micro-batches per step"
    )
    lora_rank: int | None = Field(
        default=None,
        ge=0,
        le=LARGEST_RANK,
        description="training: rank of LoRA adapters; 0 for none",
    )
    data_parallel: int | None = Field(
        default=None, ge=1, le=MOST_DEVICES, description="training: data-parallel devices"
    )
    tensor_parallel: int | None = Field(
        default=None, ge=1, le=MOST_DEVICES, description="training: tensor-parallel devices"
    )
    pipeline_parallel: int | None = Field(
        default=None, ge=1, le=MOST_DEVICES, description="training: pipeline-parallel devices"
    )
    zero_stage: int | None = Field(default=None, ge=0, le=3, description="training: stage of ZeRO")
    attention: Attention | None = Field(default=None, description=ATTENTION)
    dropout: float | None = Field(
        default=None, ge=0.0, lt=1.0, description="training: probability of every dropout"
    )
    checkpoint_blocks: bool | None = Field(
        default=None, description="training: whether every repeated block is recomputed"
    )
    optimizer_kernel: Literal["foreach", "fused"] | None = Field(
        default=None,
        description="training: foreach copies weights in a step of Adam, fused does not",
    )
    lora_targets: LoraTargets | None = Field(
        default=None, description="training: layers that get LoRA adapters"
    )
    frozen_weights: FrozenFormat | None = Field(
        default=None,
        description="training: number format of frozen weights; nf4 is the format of QLoRA",
    )
    adapter_precision: NumberFormat | None = Field(
        default=None, description="training: number format of the adapters"
    )
    frozen_inputs: bool | None = Field(
        default=None,
        description="training: whether bitsandbytes is older than 0.43.2, which keeps the inputs "
        "of quantised frozen layers",
    )
    loss_chunks: int | None = Field(
        default=None,
        ge=1,
        le=65_536,
        description="training: chunks in which logits and loss are computed",
    )
    legacy_pytorch: bool | None = Field(
        default=None, description="training: whether PyTorch is older than 1.11"
    )
    sequence_parallel: bool | None = Field(
        default=None,
        description="training: whether tensor-parallel devices also divide norms and residuals",
    )
    logits: Literal["all", "last"] | None = Field(
        default=None,
        description="inference: positions whose logits are computed, in networks that generate "
        "text",
    )
    cache_tokens: int | None = Field(
        default=None,
        ge=0,
        le=LONGEST_CACHE,
        description="inference: tokens per sequence in the key-value cache",
    )
    cache_precision: NumberFormat | None = Field(
        default=None, description="inference: number format of the key-value cache"
    )
    joined_cache: bool | None = Field(
        default=None,
        description="inference: whether every step copies the key-value cache into new tensors",
    )
    power_limit_w: Watts | None = Field(
        default=None, description="power limit set on the device, W"
    )

    def set_ups(self) -> tuple[TrainingSetup | None, InferenceSetup | None]:
        """The training and inference set-ups.

        Raises:
            BadTrainingSetup: options do not fit the phase, or contradict each other.
        """
        options = {name: getattr(self, name) for name in (*OPTIONS, *INFERENCE_OPTIONS)}
        return set_ups_of(self.phase, self.batch_size or 1, options)

    def input_sizes(self) -> InputSizes:
        """The sizes of the model's free dimensions.

        Raises:
            BadShape: a shape has another form than name=1x3x640x640.
        """
        return InputSizes(
            self.batch_size or 1, self.sequence_length, self.image_size, parse_shapes(self.shape)
        )

    def query(
        self,
        graph: OperatorGraph,
        device: Device,
        set_ups: tuple[TrainingSetup | None, InferenceSetup | None],
    ) -> Query:
        """The query for a graph on a device."""
        batch_size = self.batch_size or graph.batch_size
        network = Network(graph, batch_size, self.precision, self.phase, *set_ups)
        runtime = self.runtime or usual_runtime(network, device)
        software = Software(
            runtime=runtime, layout=self.layout, threads=self.threads, instances=self.instances
        )
        return Query(network, device, software, operation_of(network, self.power_limit_w))


class ModelQuestion(RunIn):
    """The query parameters of POST /v1/predict/model."""

    device: str = Field(description="name of a device", max_length=LONGEST_NAME, examples=["l4"])
    explain: bool = Field(
        default=False, description="whether the answer has an `attribution` by operator"
    )
