"""Workloads: operators, networks, architectures, serving, designs, suites, co-location."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from forerun.data.circuits.netlist import Circuit
from forerun.data.described import described
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.language_models.deployment import LlmDeployment
from forerun.data.language_models.kernel import LlmKernel
from forerun.data.language_models.training import LlmTraining
from forerun.data.program import ProgramGraph
from forerun.data.training_options import FrozenFormat, Optimizer

Phase = Literal["inference", "training"]
NumberFormat = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8", "amp", "amp_bf16"]
"""Precision of a run. `amp` is fp16 autocast over fp32 weights, `amp_bf16` the same in bf16."""

WeightFormat = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8", "mxfp4", "nvfp4", "int4"]
"""How weights are stored. `tf32` is `fp32` multiplied in TF32. `mxfp4` is four bits with a shared
exponent for every 32 weights, `nvfp4` four bits with a scale of 8 bits for every 16; `int4` is the
format of AWQ and GPTQ, unpacked before products."""

Attention = Literal["eager", "sdpa", "flash"]
"""How attention runs: `eager` writes the full matrix of scores; `sdpa` is PyTorch's
`scaled_dot_product_attention` and `flash` FlashAttention, which write no scores."""

LoraTargets = Literal["all_linear", "attention", "query_value"]
"""Linear layers that get adapters: all (except the one that gives the logits), the projections
around attention, or only its query and value projections."""

RequestKind = Literal["chat", "reasoning", "code", "image_chat", "video_chat"]
"""Kind of requests to a language model, which determines the lengths of prompts and answers."""

LlmArchitecture = Literal["dense", "experts", "hybrid"]
"""`experts`: mixture of experts; `hybrid`: attention and state-space layers."""

Space = Literal["nb201", "fbnet", "ofa"]
"""Architecture search space."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One operator at given shapes.

    Attributes:
        operator: shapes and attributes.
        precision: number format of its operands.
    """

    operator: Operator
    precision: NumberFormat = "fp32"
    kind: Literal["kernel"] = "kernel"


Dropout = Annotated[float, Field(ge=0.0, lt=1.0)]
CacheTokens = Annotated[int, Field(ge=0, le=1 << 24)]
Degree = Annotated[int, Field(ge=1, le=100_000)]
"""Number of devices along one dimension of parallel training."""
HowAttention = Annotated[
    Attention,
    Field(
        description="implementation of attention; eager writes the score matrices to memory, the "
        "others do not"
    ),
]


@dataclass(frozen=True, slots=True)
@described
class TrainingSetup:
    """How a network is trained, as far as memory and time depend on it.

    Each field is an option: its type has its bounds and its help text, from which the options of
    HTTP, the command line, Python and the pages are generated (`service/schemas/run_options.py`).

    Loss chunks are those of fused linear cross-entropy (Hsu et al. 2024, arXiv 2410.10989).
    PyTorch before 1.11 sets gradients to zero between steps; `zero_grad` frees them from 2.0 on.
    bitsandbytes before 0.43.2 keeps frozen inputs although they are not needed (bitsandbytes#1270).
    Sequence parallelism is that of Korthikanti et al. 2022, arXiv 2205.05198; logits are divided
    with and without it.
    """

    optimizer: Optimizer = "adamw"
    """optimizer that updates the weights"""
    checkpoint_segments: Annotated[int, Field(ge=0, le=10_000)] = 0
    """number of segments whose activations are recomputed in the backward pass; 0 for none"""
    accumulation: Annotated[int, Field(ge=1, le=65_536)] = 1
    """micro-batches per step; the number must divide the batch size"""
    lora_rank: Annotated[int, Field(ge=0, le=65_536)] = 0
    """rank of LoRA adapters, with all other weights frozen; 0 for none"""
    data_parallel: Degree = 1
    """data-parallel devices; the workload's batch size is that of one device"""
    tensor_parallel: Degree = 1
    """tensor-parallel devices, which share each layer; beyond 1, time and power are null"""
    pipeline_parallel: Degree = 1
    """pipeline-parallel devices, which divide the layers; beyond 1, time and power are null"""
    zero_stage: Literal[0, 1, 2, 3] = 0
    """stage of ZeRO: data-parallel devices shard optimizer states (1), also gradients (2), also
    weights (3)"""
    attention: HowAttention = "sdpa"
    dropout: Dropout | None = None
    """dropout probability of all layers; when absent, that of the graph if it has one, else 0"""
    checkpoint_blocks: bool = False
    """whether every repeated block is recomputed in the backward pass, as
    gradient_checkpointing_enable of Hugging Face does; it replaces checkpoint_segments"""
    optimizer_kernel: Literal["foreach", "fused"] = "foreach"
    """implementation of Adam's step: foreach copies the weights, fused does not"""
    lora_targets: LoraTargets = "all_linear"
    """layers that get LoRA adapters, where lora_rank is given"""
    frozen_weights: FrozenFormat | None = None
    """number format of frozen weights; nf4 is the format of QLoRA"""
    adapter_precision: NumberFormat | None = None
    """number format of the adapters; that of the run when absent"""
    frozen_inputs: bool = False
    """whether quantised frozen layers keep their input until the backward pass, as bitsandbytes
    before 0.43.2 did"""
    loss_chunks: Annotated[int, Field(ge=1, le=65_536)] = 1
    """chunks in which logits and cross-entropy are computed"""
    legacy_pytorch: bool = False
    """whether PyTorch is older than 1.11, which keeps gradients between steps and the input of
    softmax"""
    sequence_parallel: bool = False
    """whether tensor-parallel devices also divide norms, residuals, dropout and inputs of blocks"""


@dataclass(frozen=True, slots=True)
@described
class InferenceSetup:
    """How a forward pass runs. Each field is an option, as in `TrainingSetup`.

    A cache of 0 tokens means none. `joined_cache` means that old keys and values and the last
    step's logits are held while new ones are computed; it has no effect without a cache.
    """

    attention: HowAttention = "sdpa"
    logits: Literal["all", "last"] = "last"
    """positions whose logits are computed, in networks that generate text"""
    cache_tokens: CacheTokens | None = None
    """tokens per sequence in the key-value cache, in networks that generate text; those of the
    graph when absent"""
    cache_precision: NumberFormat | None = None
    """number format of the key-value cache; that of the run when absent"""
    joined_cache: bool = False
    """whether every step concatenates old and new keys and values into new tensors, as models of
    transformers without a cache class do"""
    steps: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """denoising steps of a diffusion pipeline; its default number when absent"""
    guidance: bool | None = None
    """whether a diffusion pipeline uses classifier-free guidance, which runs its network twice a
    step; as configured when absent"""
    offload: bool = False
    """whether the parts of a diffusion pipeline wait in the host's memory until they run, as
    enable_model_cpu_offload of diffusers does"""


@dataclass(frozen=True, slots=True)
class Network:
    """A whole network at a batch size.

    Attributes:
        graph: operators at `graph.batch_size`; costs are scaled to `batch_size`.
        batch_size: samples in one run.
        precision: number format of the run.
        phase: `inference`, or `training` (forward, backward and optimizer step).
        training: how it is trained; None is `TrainingSetup()`.
        inference: how a forward pass runs; None is `InferenceSetup()`.
    """

    graph: OperatorGraph
    batch_size: int = 1
    precision: NumberFormat = "fp32"
    phase: Phase = "inference"
    training: TrainingSetup | None = None
    inference: InferenceSetup | None = None
    kind: Literal["network"] = "network"

    @property
    def attention(self) -> Attention:
        """How attention runs."""
        setup = self.training if self.phase == "training" else self.inference
        return "sdpa" if setup is None else setup.attention


@dataclass(frozen=True, slots=True)
class Architecture:
    """A network of an architecture search space, given by its choices.

    Attributes:
        space: `nb201` (NAS-Bench-201 cells), `fbnet` or `ofa` (OFA-MobileNetV3).
        operators: the choice at every position, in the order of the bundle's columns.
    """

    space: Space
    operators: tuple[int, ...]
    kind: Literal["architecture"] = "architecture"


@dataclass(frozen=True, slots=True)
class Design:
    """A program with directives for high-level synthesis.

    Attributes:
        program: graph of the program, with slots for directives.
        directives: (slot, value), sorted by slot.
    """

    program: ProgramGraph
    directives: tuple[tuple[str, str], ...]
    kind: Literal["design"] = "design"


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One test of a benchmark suite at given settings.

    Attributes:
        suite: name of the suite; settings and results are comparable only within one suite.
        settings: (name, value), sorted by name; a text is one of several choices.
    """

    suite: str
    settings: tuple[tuple[str, float | str], ...]
    kind: Literal["benchmark"] = "benchmark"

    @property
    def by_name(self) -> dict[str, float | str]:
        """Name of a setting -> its value."""
        return dict(self.settings)


@dataclass(frozen=True, slots=True)
class HostWindow:
    """Metrics of a host, second by second.

    Attributes:
        metrics: names, as in `forerun.features.host_windows.HOST_METRICS`; others are ignored.
        seconds: one tuple per second, with a value per metric; NaN if it was not read.
    """

    metrics: tuple[str, ...] = ()
    seconds: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class ProgramProfile:
    """A program's profile from isolated runs.

    Attributes:
        program: key to measurements of the same program; never a feature.
        alone: metrics of the host while the program ran alone.
        without: metrics of the same host shortly before or after, without the program.
        working_set_mib: memory that it accesses repeatedly; None if unknown.
        cpu_share: its CPU time over its wall time in isolation; None if unknown.
        cpu_spread: spread of its isolated CPU times: the median absolute log ratio to their median;
            None if unknown.
        p_cpu_beside_cache: its CPU time in isolation over its CPU time next to a load that fills
            the caches from another CPU (`stress-ng --cache 1`), a measure of its sensitivity as in
            Bubble-Up (Mars et al., MICRO 2011); None if not measured.
    """

    program: str
    alone: HostWindow = HostWindow()
    without: HostWindow = HostWindow()
    working_set_mib: float | None = None
    cpu_share: float | None = None
    cpu_spread: float | None = None
    p_cpu_beside_cache: float | None = None


@dataclass(frozen=True, slots=True)
class Colocation:
    """A program co-located with neighbours on one host.

    Attributes:
        profile: the program.
        window: metrics of the host while it runs with them.
        estimated: whether the window was forecast from profiles, for a run in the future.
        granted: expected CPU share over the requested one, if the window does not show it; None if
            unknown.
        reference_ratio: CPU time of the isolated runs that the relative speed refers to, over the
            median of all isolated runs of the program; None if unknown, which means 1. References
            of a sensitive program differ because other guests share its caches.
    """

    profile: ProgramProfile
    window: HostWindow
    estimated: bool = False
    granted: float | None = None
    reference_ratio: float | None = None
    kind: Literal["colocation"] = "colocation"


Parameters = Annotated[float, Field(ge=1e5, le=1e15, allow_inf_nan=False)]
"""Number of parameters; the lower bound rejects a number given in billions."""
Sharing = Annotated[int, Field(ge=1, le=1024)]
"""Number of devices that share the work of a served model along one dimension."""
Routed = Annotated[int, Field(ge=0, le=65_536)]
CacheBytes = Annotated[float, Field(ge=1.0, le=1e12, allow_inf_nan=False)]
Pixels = Annotated[int, Field(ge=16, le=65_536)]
PixelsPerToken = Annotated[int, Field(ge=1, le=1024)]


@dataclass(frozen=True, slots=True)
@described
class LlmServing:
    """A language model that serves requests continuously, at its maximum concurrency.

    The devices are those of the query's `operation`. The product of the degrees of parallelism may
    exceed their number, because experts and attention are distributed separately. In mixtures of
    experts, active parameters are fewer than all; experts are 0 if unknown.
    """

    total_parameters: Parameters
    """number of parameters of the model"""
    active_parameters: Parameters
    """number of parameters used per token"""
    request: RequestKind = "chat"
    """kind of requests that are served"""
    max_sequences: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """concurrent requests over all devices"""
    weights: WeightFormat = "bf16"
    """number format of the weights"""
    architecture: LlmArchitecture = "dense"
    """kind of layers"""
    tensor_parallel: Sharing = 1
    """degree of tensor parallelism, devices"""
    expert_parallel: Sharing = 1
    """degree of expert parallelism, devices"""
    data_parallel: Sharing = 1
    """degree of data parallelism of attention, devices"""
    experts: Routed = 0
    """routed experts per layer; 0 for none"""
    experts_per_token: Routed = 0
    """routed experts per token"""
    cache_bytes_per_token: CacheBytes | None = None
    """size of the key-value cache per token over all layers, bytes"""
    kind: Literal["llm_serving"] = "llm_serving"


@dataclass(frozen=True, slots=True)
@described
class Diffusion:
    """A diffusion model that generates images or videos, batch after batch.

    For a U-Net, whose weights work at several depths, `pixels_per_token` is also 27 for SSD-1B; for
    other models it is mostly 8 x 2. A token stands for 4 x 1 frames in most models. Passes are 2
    with classifier-free guidance, and 1 if guidance is distilled into the network.
    """

    parameters: Parameters
    """number of parameters of the denoising network"""
    height: Pixels
    """height of the image or video, pixels"""
    width: Pixels
    """width of the image or video, pixels"""
    frames: Annotated[int, Field(ge=1, le=10_000)] = 1
    """frames of the video; 1 for images"""
    steps: Annotated[int, Field(ge=1, le=10_000)] = 50
    """number of denoising steps"""
    batch_size: Annotated[int, Field(ge=1, le=65_536)] = 1
    """images or videos per batch"""
    weights: WeightFormat = "bf16"
    """number format of the weights"""
    ring_parallel: Sharing = 1
    """degree of ring parallelism over the sequence, devices"""
    ulysses_parallel: Sharing = 1
    """degree of Ulysses parallelism over the heads, devices"""
    pixels_per_token: PixelsPerToken | None = None
    """pixels per token along each side: the autoencoder's factor times the patch size; for a U-Net,
    the value that gives as many operations: 30 for SDXL, 26 for Stable Diffusion 1 and 2"""
    frames_per_token: Annotated[int, Field(ge=1, le=1024)] | None = None
    """frames of the video per token"""
    passes: Annotated[int, Field(ge=1, le=16)] | None = None
    """forward passes of the network per sample and step"""
    kind: Literal["diffusion"] = "diffusion"


OperatorWorkload = Kernel | Network
"""Workloads that run operators in a given precision."""

Workload = (
    OperatorWorkload
    | Architecture
    | LlmServing
    | LlmDeployment
    | LlmTraining
    | LlmKernel
    | Diffusion
    | Design
    | Benchmark
    | Colocation
    | Circuit
)


def operator_graph(run: OperatorWorkload) -> OperatorGraph:
    """The graph of a network, or a graph of one operator."""
    return run.graph if isinstance(run, Network) else OperatorGraph((run.operator,))


def has_optimizer(network: Network) -> bool:
    """Whether a training step of a network ends with an update of its weights."""
    return network.training is None or network.training.optimizer != "none"


def phase_of(run: OperatorWorkload) -> Phase:
    """The phase of a network; `inference` for a single operator."""
    return run.phase if isinstance(run, Network) else "inference"


def batch_size_of(workload: Workload) -> int | None:
    """Samples in one run; None for workloads without a batch."""
    return workload.batch_size if isinstance(workload, Network | Diffusion) else None
