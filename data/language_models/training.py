"""A language model that is trained: lengths, batch, layout over devices, and the cluster."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field

from forerun.data.errors import UnanswerableQuery
from forerun.data.language_models.attention import Attention
from forerun.data.language_models.feed_forward import Experts
from forerun.data.language_models.model import LanguageModel
from forerun.data.training_options import FrozenFormat, Optimizer

TrainingFramework = Literal[
    "megatron", "megatron-legacy", "torchtitan", "fsdp", "deepspeed", "maxtext"
]
"""Training framework: Megatron-LM and what is built on it (NeMo, Megatron-Bridge), torchtitan and
others on PyTorch's FSDP2, those on its first FSDP (llm-foundry, accelerate), DeepSpeed, MaxText.
`megatron-legacy` is Megatron-LM before Megatron-Core (2023), and Megatron-DeepSpeed."""

TrainingPrecision = Literal["bf16", "fp16", "fp8", "mxfp8", "nvfp4"]
"""Number format of matrix products; attention and the output head stay in 16 bits. `fp8` has one
scale a tensor or row, `mxfp8` one for 32 values, `nvfp4` one for 16."""

Recompute = Literal["none", "selective", "full"]
"""What the backward pass computes again: nothing, the scores of attention, or every layer."""

Offload = Literal["none", "optimizer", "activations"]
"""What is kept in the host's memory: nothing, the optimizer's states and its step, or activations.
"""

ScoreStorage = Literal["flash", "eager"]
"""Whether attention writes its matrix of scores: FlashAttention does not, eager code does."""

Objective = Literal["time", "price", "energy"]
"""What is least for a number of tokens: time, or seconds of devices, to which price and energy are
proportional (power is not predicted by layout)."""

Degree = Annotated[int, Field(ge=1, le=100_000)]
Tokens = Annotated[int, Field(ge=1, le=1 << 24)]
Batch = Annotated[int, Field(ge=1, le=10_000_000)]


@dataclass(frozen=True, slots=True)
class Cluster:
    """How devices are connected; None is what machines with that device have.

    Attributes:
        node_devices: devices that the fast links connect, such as 8, or 72 in an NVL72 rack.
        network_gbit_s: rate of the network of one device, Gbit/s in one direction.
    """

    node_devices: Annotated[
        Degree | None,
        Field(description="devices that fast links connect; that of common machines when absent"),
    ] = None
    network_gbit_s: Annotated[
        Annotated[float, Field(gt=0, le=100_000)] | None,
        Field(
            description="network rate of one device, Gbit/s in one direction; that of common "
            "machines when absent"
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class TrainingLayout:
    """How a training step is divided over devices and time.

    Data-parallel devices are those that the other degrees leave; experts are spread over devices of
    the data-parallel (and tensor-parallel) groups.
    """

    tensor: Annotated[Degree, Field(description="devices that share each layer's products")] = 1
    context: Annotated[Degree, Field(description="devices that share each sequence")] = 1
    pipeline: Annotated[Degree, Field(description="groups of devices with successive layers")] = 1
    virtual_stages: Annotated[
        Degree,
        Field(
            description="groups of layers that each pipeline device holds; above 1 the schedule is "
            "interleaved 1F1B"
        ),
    ] = 1
    expert: Annotated[Degree, Field(description="devices that routed experts are spread over")] = 1
    micro_batch: Annotated[
        Batch, Field(description="sequences of one forward pass on one data-parallel rank")
    ] = 1
    zero_stage: Annotated[
        Literal[0, 1, 2, 3],
        Field(
            description="stage of ZeRO: data-parallel devices shard optimizer states (1), also "
            "gradients (2), also weights (3, as FSDP does)"
        ),
    ] = 1
    shard_devices: Annotated[
        Degree | None,
        Field(
            description="data-parallel devices that hold one full copy together (hybrid sharding); "
            "all of them when absent"
        ),
    ] = None
    sequence_parallel: Annotated[
        bool,
        Field(description="whether tensor-parallel devices also divide norms and residuals"),
    ] = True
    recompute: Annotated[
        Recompute,
        Field(description="what the backward pass computes again, to save memory"),
    ] = "none"
    offload: Annotated[Offload, Field(description="what is kept in the host's memory")] = "none"

    @property
    def model_devices(self) -> int:
        """Devices of one data-parallel rank."""
        return self.tensor * self.context * self.pipeline


@dataclass(frozen=True, slots=True)
class LlmTraining:
    """Steps of training a language model; the device count of the query is `devices`.

    `check` checks the degrees: a search makes a run before it has any.
    """

    model: LanguageModel
    sequence_tokens: Annotated[Tokens, Field(description="tokens of each sequence")]
    global_batch: Annotated[
        Batch, Field(description="sequences of one step, all devices and micro-batches together")
    ]
    devices: Annotated[Degree, Field(description="number of devices")] = 1
    layout: TrainingLayout = TrainingLayout()
    precision: Annotated[
        TrainingPrecision,
        Field(description="number format of the layers' matrix products"),
    ] = "bf16"
    optimizer: Annotated[
        Optimizer, Field(description="optimizer, with the format of its moments")
    ] = "adamw"
    framework: Annotated[
        TrainingFramework,
        Field(
            description="training framework: megatron is Megatron-LM, NeMo and Megatron-Bridge; "
            "fsdp is accelerate, Transformers and others on PyTorch's FSDP"
        ),
    ] = "megatron"
    attention: Annotated[
        ScoreStorage,
        Field(description="whether attention keeps its matrix of scores: flash does not"),
    ] = "flash"
    lora_rank: Annotated[
        int,
        Field(ge=0, le=65_536, description="rank of LoRA adapters on frozen weights; 0 trains all"),
    ] = 0
    frozen_weights: Annotated[
        FrozenFormat | None,
        Field(description="how frozen weights are stored, nf4 for QLoRA; in 16 bits when absent"),
    ] = None
    cluster: Cluster = Cluster()
    kind: Literal["llm_training"] = "llm_training"

    def check(self) -> None:
        """Check that degrees divide devices, batch, sequence, heads, layers and experts.

        Raises:
            UnanswerableQuery: one of them does not.
        """
        for fault in faults_of_layout(self, self.layout):
            raise UnanswerableQuery(fault)

    @property
    def data(self) -> int:
        """Data-parallel ranks."""
        return self.devices // self.layout.model_devices

    @property
    def micro_batches(self) -> int:
        """Micro-batches of one data-parallel rank in a step."""
        return self.global_batch // (self.data * self.layout.micro_batch)


def faults_of_layout(run: LlmTraining, layout: TrainingLayout) -> Iterator[str]:
    """What is wrong with a layout of a run, a line each; nothing where its degrees divide it."""
    product = layout.model_devices
    if run.devices % product:
        yield f"tensor x context x pipeline = {product} does not divide devices = {run.devices}."
        return
    ranks = run.devices // product
    if run.global_batch % (ranks * layout.micro_batch):
        yield (
            f"global_batch = {run.global_batch} is no multiple of {ranks} data-parallel ranks x "
            f"micro_batch = {layout.micro_batch}."
        )
    if run.sequence_tokens % layout.context:
        yield f"context = {layout.context} does not divide sequence_tokens = {run.sequence_tokens}."
    if layout.shard_devices is not None and ranks * layout.context % layout.shard_devices:
        yield (
            f"shard_devices = {layout.shard_devices} does not divide {ranks * layout.context} "
            "data-parallel devices."
        )
    yield from _faults_of_model(run.model, layout, run.devices // layout.pipeline)


def _faults_of_model(model: LanguageModel, layout: TrainingLayout, stage: int) -> Iterator[str]:
    """What does not divide heads, layers and experts, where a stage has so many devices."""
    if any(heads % layout.tensor for heads in query_heads(model)):
        yield f"tensor = {layout.tensor} does not divide the model's attention heads."
    groups, layers = layout.pipeline * layout.virtual_stages, len(model.layers)
    if groups > layers + 2:
        yield (
            f"pipeline x virtual_stages = {groups} is more than the {layers} layers, embeddings "
            "and head."
        )
    if layout.virtual_stages > 1 and layout.pipeline == 1:
        yield "virtual_stages needs pipeline above 1."
    experts = routed_experts(model)
    if layout.expert > 1 and not experts:
        yield "expert is above 1, but the model has no routed experts."
    elif experts % layout.expert:
        yield f"expert = {layout.expert} does not divide {experts} routed experts."
    elif stage % layout.expert:
        yield f"expert = {layout.expert} does not divide the {stage} devices of a pipeline stage."


@lru_cache(maxsize=256)
def routed_experts(model: LanguageModel) -> int:
    """Routed experts of a layer of a model; 0 where it has none."""
    parts = (part for layer in model.layers for part in layer.feed_forward)
    return max((part.experts for part in parts if isinstance(part, Experts)), default=0)


@lru_cache(maxsize=256)
def query_heads(model: LanguageModel) -> frozenset[int]:
    """The numbers of query heads of a model's attention layers."""
    mixers = (layer.mixer for layer in model.layers)
    return frozenset(mixer.query_heads for mixer in mixers if isinstance(mixer, Attention))


@lru_cache(maxsize=256)
def key_heads(model: LanguageModel) -> frozenset[int]:
    """The numbers of heads of keys of a model's attention layers."""
    mixers = (layer.mixer for layer in model.layers)
    return frozenset(mixer.key_value_heads for mixer in mixers if isinstance(mixer, Attention))
