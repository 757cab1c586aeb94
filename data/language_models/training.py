"""A training run of a language model: batch, sequence lengths, layout over devices, and cluster."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from forerun.data.described import described
from forerun.data.errors import UnanswerableQuery
from forerun.data.language_models.attention import Attention
from forerun.data.language_models.feed_forward import Experts
from forerun.data.language_models.model import LanguageModel
from forerun.data.training_options import FrozenFormat, Optimizer

TrainingFramework = Literal[
    "megatron",
    "megatron-legacy",
    "megatron-deepspeed",
    "torchtitan",
    "fsdp",
    "deepspeed",
    "maxtext",
]
"""Training framework: Megatron-LM and frameworks built on it (NeMo, Megatron-Bridge), torchtitan
and others on PyTorch's FSDP2, those on its first FSDP (llm-foundry, accelerate), DeepSpeed,
MaxText. `megatron-legacy` is Megatron-LM before Megatron-Core (2023), `megatron-deepspeed` its
layers in DeepSpeed's pipelines."""

TrainingPrecision = Literal["bf16", "fp16", "fp8", "mxfp8", "nvfp4"]
"""Number format of matrix products; attention and the output head stay in 16 bits. `fp8` has one
scale per tensor or row, `mxfp8` one per 32 values, `nvfp4` one per 16."""

Recompute = Literal["none", "selective", "full"]
"""What the backward pass recomputes: nothing, what the framework selects (attention in Megatron-LM;
elsewhere every other matrix product and everything between products), or every layer."""

Schedule = Literal["1f1b", "zb-h1", "zb-h2", "zb-v", "dualpipe"]
"""Pipeline schedule: one forward, one backward (interleaved if devices hold several virtual
stages); ZB-H1, ZB-H2 and ZB-V, in which weight gradients fill the bubble (Qi et al. 2024,
arXiv 2401.10241); or DualPipe, which feeds two copies of the model from both ends (DeepSeek-V3,
arXiv 2412.19437)."""

Offload = Literal["none", "optimizer", "activations"]
"""What is offloaded to the host: nothing, the optimizer's states and step, or activations."""

AttentionKind = Literal["flash", "flash-fp8", "eager"]
"""Implementation of attention: FlashAttention does not store its score matrix, eager code does.
`flash-fp8` multiplies in FP8, as `fp8_dpa` of Transformer Engine."""

Objective = Literal["time", "price", "energy"]
"""What a search minimises per token: time, or device-seconds, to which price and energy are
proportional (power is not predicted by layout)."""

MOST_LENGTHS = 32
Degree = Annotated[int, Field(ge=1, le=100_000)]
Tokens = Annotated[int, Field(ge=1, le=1 << 24)]
Batch = Annotated[int, Field(ge=1, le=10_000_000)]


@dataclass(frozen=True, slots=True)
@described
class Cluster:
    """How devices are connected; None stands for what machines with that device usually have."""

    node_devices: Degree | None = None
    """devices in a node, joined by fast links; as in common machines when absent"""
    network_gbit_s: Annotated[float, Field(gt=0, le=100_000)] | None = None
    """network bandwidth of one device in one direction, Gbit/s; as in common machines when
    absent"""


@dataclass(frozen=True, slots=True)
@described
class SampleLength:
    """Samples of one length in a distribution."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")
    tokens: Tokens
    """tokens of each"""
    share: Annotated[float, Field(gt=0, le=1e12)]
    """how many, in a unit common to all lengths"""


def length_of(given: object) -> object:
    """Parse TOKENS,SHARE into the fields of a `SampleLength`; return anything else unchanged."""
    words = f"{given},1".split(",")  # Without a share it is 1.
    return dict(zip(("tokens", "share"), words, strict=False)) if isinstance(given, str) else given


@dataclass(frozen=True, slots=True)
@described
class TrainingLayout:
    """How a training step is divided over devices and time.

    The data-parallel degree is what the other degrees leave; experts are distributed over devices
    of the data-parallel (and tensor-parallel) groups.
    """

    tensor: Degree = 1
    """devices that share each layer's matrix products"""
    context: Degree = 1
    """devices that share each sequence"""
    pipeline: Degree = 1
    """stages of the pipeline, each with consecutive layers"""
    virtual_stages: Degree = 1
    """virtual stages on each pipeline device; above 1, the schedule is interleaved 1F1B"""
    expert: Degree = 1
    """devices that routed experts are spread over"""
    micro_batch: Batch = 1
    """sequences of one forward pass on one data-parallel rank"""
    zero_stage: Literal[0, 1, 2, 3] = 1
    """stage of ZeRO: data-parallel devices shard optimizer states (1), also gradients (2), also
    weights (3, as FSDP does)"""
    shard_devices: Degree | None = None
    """data-parallel devices that together hold one full copy (hybrid sharding); all when absent"""
    sequence_parallel: bool = True
    """whether tensor-parallel devices also divide norms and residuals"""
    recompute: Recompute = "none"
    """what the backward pass computes again, to save memory"""
    recompute_layers: Degree | None = None
    """layers of each pipeline stage that recompute = full applies to; all when absent"""
    offload: Offload = "none"
    """what is kept in the host's memory"""
    schedule: Schedule = "1f1b"
    """pipeline schedule; zb are zero-bubble schedules, zb-v has 2 virtual stages, and dualpipe is
    that of DeepSeek-V3, with two copies of the weights"""

    @property
    def model_devices(self) -> int:
        """Devices of one data-parallel rank."""
        return self.tensor * self.context * self.pipeline


@dataclass(frozen=True, slots=True)
@described
class LlmTraining:
    """Steps of training a language model; the query's device count is `devices`.

    The degrees are not checked until `check`, because a layout search starts from a run without
    any.
    """

    model: LanguageModel
    sequence_tokens: Tokens
    """tokens of each sequence, to which longer samples of a distribution are cut"""
    global_batch: Batch
    """sequences of one step, all devices and micro-batches together"""
    devices: Degree = 1
    """number of devices"""
    layout: TrainingLayout = TrainingLayout()
    precision: TrainingPrecision = "bf16"
    """number format of the layers' matrix products"""
    optimizer: Optimizer = "adamw"
    """optimizer, with the format of its moments"""
    framework: TrainingFramework = "megatron"
    """training framework: megatron is Megatron-LM, NeMo and Megatron-Bridge; fsdp is accelerate,
    Transformers and others on PyTorch's FSDP"""
    attention: AttentionKind = "flash"
    """implementation of attention: flash does not store the score matrix, flash-fp8 multiplies in
    FP8 (Transformer Engine's fp8_dpa)"""
    lora_rank: Annotated[int, Field(ge=0, le=65_536)] = 0
    """rank of LoRA adapters on frozen weights; 0 trains all"""
    frozen_weights: FrozenFormat | None = None
    """how frozen weights are stored, nf4 for QLoRA; in 16 bits when absent"""
    cluster: Cluster = Cluster()
    lengths: Annotated[
        tuple[Annotated[SampleLength, BeforeValidator(length_of)], ...],
        Field(max_length=MOST_LENGTHS),
    ] = ()
    """distribution of sample lengths; a length may be given as TOKENS,SHARE"""
    packed: bool = False
    """whether samples are packed into full sequences, with attention inside each; otherwise padded
    to the longest of the micro-batch"""
    kind: Literal["llm_training"] = "llm_training"

    def check(self) -> None:
        """Check that degrees divide devices, batch, sequence, heads, layers and experts.

        Raises:
            UnanswerableQuery: one of them does not.
        """
        for fault in faults_of_layout(self, self.layout):
            raise UnanswerableQuery(fault)

    @property
    def step_tokens(self) -> float:
        """Tokens of a step, without padding."""
        lengths = self.lengths if not self.packed else ()
        total = sum(length.share for length in lengths)
        used = (
            min(length.tokens, self.sequence_tokens) * length.share / total for length in lengths
        )
        return self.global_batch * (sum(used) if lengths else self.sequence_tokens)

    @property
    def data(self) -> int:
        """Data-parallel ranks."""
        return self.devices // self.layout.model_devices

    @property
    def micro_batches(self) -> int:
        """Micro-batches of one data-parallel rank in a step."""
        return self.global_batch // (self.data * self.layout.micro_batch)


def faults_of_layout(run: LlmTraining, layout: TrainingLayout) -> Iterator[str]:
    """Faults of a layout for a run, one line each; none if all degrees divide what they must."""
    product = layout.model_devices
    if run.devices % product:
        yield f"tensor x context x pipeline = {product} does not divide devices = {run.devices}."
        return
    ranks = run.devices // product
    if run.global_batch % (ranks * layout.micro_batch):
        yield (
            f"global_batch = {run.global_batch} is not a multiple of {ranks} data-parallel "
            f"ranks x micro_batch = {layout.micro_batch}."
        )
    batches, stages = run.global_batch // (ranks * layout.micro_batch), layout.pipeline
    if layout.schedule == "dualpipe" and (stages % 2 or batches % 2 or batches < 2 * stages):
        yield (
            f"schedule = dualpipe needs an even pipeline ({stages} is given) and an even number of "
            f"micro-batches, at least twice as many ({batches})."
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
    """Faults of a layout for a model's heads, layers and experts, with `stage` devices a stage."""
    if any(heads % layout.tensor for heads in query_heads(model)):
        yield f"tensor = {layout.tensor} does not divide the model's attention heads."
    groups, layers = layout.pipeline * layout.virtual_stages, len(model.layers)
    if groups > layers + 2:
        yield (
            f"pipeline x virtual_stages = {groups} is more than the {layers} layers, embeddings "
            "and head."
        )
    if layout.recompute_layers is not None and layout.recompute != "full":
        yield "recompute_layers needs recompute = full."
    if layout.virtual_stages > 1 and layout.pipeline == 1:
        yield "virtual_stages needs pipeline above 1."
    held = 1 + (layout.schedule == "zb-v")
    if layout.schedule != "1f1b" and (layout.pipeline == 1 or layout.virtual_stages != held):
        yield f"schedule = {layout.schedule} needs pipeline above 1 and virtual_stages = {held}."
    experts = routed_experts(model)
    if layout.expert > 1 and not experts:
        yield "expert is above 1, but the model has no routed experts."
    elif experts % layout.expert:
        yield f"expert = {layout.expert} does not divide {experts} routed experts."
    elif stage % layout.expert:
        yield f"expert = {layout.expert} does not divide the {stage} devices of a pipeline stage."


@lru_cache(maxsize=256)
def routed_experts(model: LanguageModel) -> int:
    """Routed experts per layer of a model; 0 if it has none."""
    parts = (part for layer in model.layers for part in layer.feed_forward)
    return max((part.experts for part in parts if isinstance(part, Experts)), default=0)


@lru_cache(maxsize=256)
def query_heads(model: LanguageModel) -> frozenset[int]:
    """The distinct numbers of query heads in a model's attention layers."""
    mixers = (layer.mixer for layer in model.layers)
    return frozenset(mixer.query_heads for mixer in mixers if isinstance(mixer, Attention))


@lru_cache(maxsize=256)
def key_heads(model: LanguageModel) -> frozenset[int]:
    """The distinct numbers of key-value heads in a model's attention layers."""
    mixers = (layer.mixer for layer in model.layers)
    return frozenset(mixer.key_value_heads for mixer in mixers if isinstance(mixer, Attention))
