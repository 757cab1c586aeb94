"""Keywords of Python; written by `python docs/reference.py` from descriptions."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypedDict

from forerun.data.language_models.training import (
    AttentionKind,
    TrainingFramework,
    TrainingPrecision,
)
from forerun.data.software import (
    Layout,
    Runtime,
)
from forerun.data.training_options import (
    FrozenFormat,
    Optimizer,
)
from forerun.data.workload import (
    Attention,
    LlmArchitecture,
    LoraTargets,
    NumberFormat,
    Phase,
    RequestKind,
)

READING: Final[Mapping[str, Any]]

class RunOptions(TypedDict, total=False):
    batch_size: int | None
    precision: NumberFormat
    phase: Phase
    runtime: Runtime | None
    layout: Layout
    threads: int | None
    instances: int
    sequence_length: int | None
    image_size: int
    level: float
    power_limit_w: float | None
    optimizer: Optimizer | None
    checkpoint_segments: int | None
    accumulation: int | None
    lora_rank: int | None
    data_parallel: int | None
    tensor_parallel: int | None
    pipeline_parallel: int | None
    zero_stage: int | None
    attention: Attention | None
    dropout: float | None
    checkpoint_blocks: bool | None
    optimizer_kernel: Literal["foreach", "fused"] | None
    lora_targets: LoraTargets | None
    frozen_weights: FrozenFormat | None
    adapter_precision: NumberFormat | None
    frozen_inputs: bool | None
    loss_chunks: int | None
    legacy_pytorch: bool | None
    sequence_parallel: bool | None
    logits: Literal["all", "last"] | None
    cache_tokens: int | None
    cache_precision: NumberFormat | None
    joined_cache: bool | None
    steps: int | None
    guidance: bool | None
    offload: bool | None
    example_inputs: Any
    shapes: Mapping[str, Sequence[int | None]]

class LlmSizes(TypedDict, total=False):
    active_parameters: float
    request: RequestKind
    max_sequences: int
    architecture: LlmArchitecture
    tensor_parallel: int
    expert_parallel: int
    data_parallel: int
    experts: int
    experts_per_token: int
    cache_bytes_per_token: float | None

class TrainingRun(TypedDict, total=False):
    sequence_tokens: int
    global_batch: int
    devices: int
    precision: TrainingPrecision
    optimizer: Optimizer
    framework: TrainingFramework
    attention: AttentionKind
    lora_rank: int
    frozen_weights: FrozenFormat | None
    packed: bool
    lengths: Sequence[str | Mapping[str, float]]
    cluster: Mapping[str, Any]
    tokens: float
    usd_per_device_hour: float
    grid_g_co2_per_kwh: float
    region: str
