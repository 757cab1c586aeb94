"""A language model that is trained: lengths, batch, layout over devices, and the cluster."""

from dataclasses import dataclass
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

    Raises:
        UnanswerableQuery: degrees do not divide the devices, the batch, heads, layers or experts.
    """

    model: LanguageModel
    sequence_tokens: int
    global_batch: int
    devices: int = 1
    layout: TrainingLayout = TrainingLayout()
    precision: TrainingPrecision = "bf16"
    optimizer: Optimizer = "adamw"
    framework: TrainingFramework = "megatron"
    attention: ScoreStorage = "flash"
    lora_rank: int = 0
    frozen_weights: FrozenFormat | None = None
    cluster: Cluster = Cluster()
    kind: Literal["llm_training"] = "llm_training"

    def __post_init__(self) -> None:
        for fault in faults_of_layout(self):
            raise UnanswerableQuery(fault)

    @property
    def data(self) -> int:
        """Data-parallel ranks."""
        return self.devices // self.layout.model_devices

    @property
    def micro_batches(self) -> int:
        """Micro-batches of one data-parallel rank in a step."""
        return self.global_batch // (self.data * self.layout.micro_batch)


def faults_of_layout(run: LlmTraining) -> tuple[str, ...]:
    """What is wrong with the degrees of a run, one line each; empty where nothing is."""
    layout, experts = run.layout, routed_experts(run.model)
    product = layout.model_devices
    if run.devices % product:
        return (
            f"tensor x context x pipeline = {product} does not divide devices = {run.devices}.",
        )
    ranks = run.devices // product
    rules = [
        (
            run.global_batch % (ranks * layout.micro_batch) == 0,
            f"global_batch = {run.global_batch} is no multiple of {ranks} data-parallel ranks x "
            f"micro_batch = {layout.micro_batch}.",
        ),
        (
            all(heads % layout.tensor == 0 for heads in _query_heads(run.model)),
            f"tensor = {layout.tensor} does not divide the model's attention heads.",
        ),
        (
            layout.pipeline * layout.virtual_stages <= len(run.model.layers) + 2,
            f"pipeline x virtual_stages = {layout.pipeline * layout.virtual_stages} is more than "
            f"the {len(run.model.layers)} layers with embeddings and head.",
        ),
        (
            layout.pipeline > 1 or layout.virtual_stages == 1,
            "virtual_stages needs pipeline above 1.",
        ),
        (
            layout.expert == 1 or experts % layout.expert == 0,
            f"expert = {layout.expert} does not divide {experts} routed experts."
            if experts
            else "expert is above 1, but the model has no routed experts.",
        ),
        (
            (ranks * layout.context * layout.tensor) % layout.expert == 0,
            f"expert = {layout.expert} does not divide the {ranks * layout.context * layout.tensor}"
            " devices of a pipeline stage.",
        ),
        (
            layout.shard_devices is None or (ranks * layout.context) % layout.shard_devices == 0,
            f"shard_devices = {layout.shard_devices} does not divide "
            f"{ranks * layout.context} data-parallel devices.",
        ),
        (
            run.sequence_tokens % layout.context == 0,
            f"context = {layout.context} does not divide sequence_tokens = {run.sequence_tokens}.",
        ),
    ]
    return tuple(line for holds, line in rules if not holds)


def routed_experts(model: LanguageModel) -> int:
    """Routed experts of a layer of a model; 0 where it has none."""
    parts = (part for layer in model.layers for part in layer.feed_forward)
    return max((part.experts for part in parts if isinstance(part, Experts)), default=0)


def _query_heads(model: LanguageModel) -> set[int]:
    """The numbers of query heads of a model's attention layers."""
    mixers = (layer.mixer for layer in model.layers)
    return {mixer.query_heads for mixer in mixers if isinstance(mixer, Attention)}
