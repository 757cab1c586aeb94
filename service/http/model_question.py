"""What stands beside an uploaded model: the question as query parameters."""

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
from forerun.service.schemas.prediction import LARGEST_BATCH, LONGEST_NAME
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


class ModelQuestion(BaseModel):
    """On which device, and how it is run."""

    device: str = Field(description="name of a device", max_length=LONGEST_NAME, examples=["l4"])
    batch_size: int = Field(default=1, ge=1, le=LARGEST_BATCH, description="samples")
    precision: NumberFormat = Field(default="fp32", description="number format")
    phase: Phase = Field(default="inference", description="inference or training")
    runtime: Runtime | None = Field(
        default=None,
        description="how the graph is executed; onnxruntime for ONNX files on processors, "
        "else eager",
    )
    layout: Layout = Field(default="nchw", description="layout of image tensors")
    threads: int | None = Field(
        default=None, ge=1, le=1024, description="that compute, on a processor; as it was measured"
    )
    sequence_length: int | None = Field(
        default=None, ge=1, le=2**20, description="bound to free sequence dimensions"
    )
    optimizer: Optimizer | None = Field(default=None, description="of training; AdamW when absent")
    checkpoint_segments: int | None = Field(
        default=None, ge=0, le=MOST_SEGMENTS, description="of training: parts computed again"
    )
    accumulation: int | None = Field(
        default=None, ge=1, le=LARGEST_BATCH, description="of training: micro-batches of a step"
    )
    lora_rank: int | None = Field(
        default=None, ge=0, le=LARGEST_RANK, description="of training: adapters; 0 for none"
    )
    data_parallel: int | None = Field(
        default=None, ge=1, le=MOST_DEVICES, description="of training: devices with a batch each"
    )
    tensor_parallel: int | None = Field(
        default=None, ge=1, le=MOST_DEVICES, description="of training: devices that share a layer"
    )
    pipeline_parallel: int | None = Field(
        default=None, ge=1, le=MOST_DEVICES, description="of training: devices along the layers"
    )
    zero_stage: int | None = Field(
        default=None, ge=0, le=3, description="of training: what data-parallel devices share"
    )
    attention: Attention | None = Field(default=None, description=ATTENTION)
    dropout: float | None = Field(
        default=None, ge=0.0, lt=1.0, description="of training: probability of every dropout"
    )
    checkpoint_blocks: bool | None = Field(
        default=None, description="of training: every repeated block is computed again"
    )
    optimizer_kernel: Literal["foreach", "fused"] | None = Field(
        default=None, description="of training: foreach copies weights in a step, fused does not"
    )
    lora_targets: LoraTargets | None = Field(
        default=None, description="of training: layers that get adapters"
    )
    frozen_weights: FrozenFormat | None = Field(
        default=None, description="of training: how frozen weights are stored; nf4 is QLoRA's"
    )
    adapter_precision: NumberFormat | None = Field(
        default=None, description="of training: number format of adapters"
    )
    loss_chunks: int | None = Field(
        default=None, ge=1, le=65_536, description="of training: parts of logits and loss"
    )
    legacy_pytorch: bool | None = Field(
        default=None, description="of training: PyTorch before 1.11"
    )
    sequence_parallel: bool | None = Field(
        default=None, description="of training: tensor-parallel devices share norms, too"
    )
    logits: Literal["all", "last"] | None = Field(
        default=None, description="of inference, of networks that generate text: positions"
    )
    cache_tokens: int | None = Field(
        default=None,
        ge=0,
        le=LONGEST_CACHE,
        description="of inference: tokens of each sequence whose keys and values are kept",
    )
    cache_precision: NumberFormat | None = Field(
        default=None, description="of inference: number format of keys and values"
    )
    joined_cache: bool | None = Field(
        default=None, description="of inference: every step makes keys and values anew"
    )
    power_limit_w: float | None = Field(
        default=None, gt=0, le=1e5, description="limit set on the device, W"
    )

    def set_ups(self) -> tuple[TrainingSetup | None, InferenceSetup | None]:
        """How it is trained or run forward.

        Raises:
            BadTrainingSetup: an option is not of the phase, or options contradict each other.
        """
        options = {name: getattr(self, name) for name in (*OPTIONS, *INFERENCE_OPTIONS)}
        return set_ups_of(self.phase, self.batch_size, options)

    def query(
        self,
        graph: OperatorGraph,
        device: Device,
        set_ups: tuple[TrainingSetup | None, InferenceSetup | None],
    ) -> Query:
        """The question about a graph."""
        network = Network(graph, self.batch_size, self.precision, self.phase, *set_ups)
        runtime = self.runtime or usual_runtime(graph, device)
        software = Software(runtime=runtime, layout=self.layout, threads=self.threads)
        return Query(network, device, software, operation_of(network, self.power_limit_w))
