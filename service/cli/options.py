"""Options that several commands share: the network, and how it is run and trained."""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from forerun.data import software as runs
from forerun.data import workload as workloads
from forerun.data.errors import InputError

if TYPE_CHECKING:
    from forerun.data.device import Device
    from forerun.models.answers.in_use import InUse
    from forerun.service.stores.devices import DeviceStore
    from forerun.training.engines.jobs import Engine

Source = Annotated[
    Path, typer.Argument(help="model file: .onnx, .pt2, config.json, or graph .json")
]
BatchSize = Annotated[
    int | None,
    typer.Option(help="samples in one run [those that the file fixes, or 1]", min=1, max=65536),
]
Precision = Annotated[str, typer.Option(help="number format: fp32, tf32, fp16, bf16, amp, ...")]
Phase = Annotated[str, typer.Option(help="phase: inference or training")]
UsualRuntime = Annotated[
    str | None,
    typer.Option(
        help="execution mode: eager, compiled, reduce-overhead, torchscript, tensorrt, onnxruntime "
        "[onnxruntime for inference on processors, else eager]"
    ),
]
Threads = Annotated[
    int | None, typer.Option(help="computing threads on a processor [as it was measured]", min=1)
]
Instances = Annotated[
    int, typer.Option(help="instances of the run at once on one processor", min=1, max=1024)
]
ProtocolOption = Annotated[list[str] | None, typer.Option(help="only this one; repeatable")]
PredictorOption = Annotated[
    list[str] | None, typer.Option(help="this one by itself, no whole answers; repeatable")
]
EngineName = Literal["local", "ray"]
EngineOption = Annotated[
    EngineName,
    typer.Option("--engine", help="where work runs: local, or ray for tasks of a Ray cluster"),
]
Layout = Annotated[str, typer.Option(help="layout of image tensors: nchw or nhwc")]
SequenceLength = Annotated[
    int | None, typer.Option(help="size of free sequence dimensions [128]", min=1)
]
ImageSize = Annotated[
    int | None, typer.Option(help="size of free heights and widths, pixels [224]", min=1)
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        help="shape of an input, name=1x3x640x640; ? leaves a dimension open; may be repeated",
    ),
]
Optimizer = Annotated[
    str | None,
    typer.Option(
        help="optimizer: none, sgd, momentum, adam, adamw (default), adafactor, adam8bit, adam4bit"
    ),
]
Segments = Annotated[
    int | None, typer.Option(help="segments recomputed in the backward pass; 0 for none", min=0)
]
Accumulation = Annotated[int | None, typer.Option(help="micro-batches per step", min=1)]
LoraRank = Annotated[int | None, typer.Option(help="rank of LoRA adapters; 0 for none", min=0)]
DataParallel = Annotated[int | None, typer.Option(help="data-parallel devices", min=1)]
TensorParallel = Annotated[int | None, typer.Option(help="tensor-parallel devices", min=1)]
PipelineParallel = Annotated[int | None, typer.Option(help="pipeline-parallel devices", min=1)]
ZeroStage = Annotated[
    int | None,
    typer.Option(
        help="stage of ZeRO: 1 shards optimizer states, 2 also gradients, 3 also weights",
        min=0,
        max=3,
    ),
]
AttentionKind = Annotated[
    str | None, typer.Option(help="implementation of attention: eager, sdpa (default), flash")
]
Dropout = Annotated[
    float | None, typer.Option(help="probability of every dropout [the graph's own]", min=0.0)
]
CheckpointBlocks = Annotated[
    bool | None, typer.Option(help="recompute every repeated block in the backward pass")
]
OptimizerKernel = Annotated[
    str | None, typer.Option(help="implementation of Adam's step: foreach (default), fused")
]
LoraTargets = Annotated[
    str | None,
    typer.Option(help="layers with adapters: all_linear (default), attention, query_value"),
]
FrozenWeights = Annotated[
    str | None, typer.Option(help="number format of frozen weights: nf4, int8, ... [as the run]")
]
AdapterPrecision = Annotated[
    str | None, typer.Option(help="number format of adapters [as the run]")
]
LossChunks = Annotated[
    int | None, typer.Option(help="chunks in which logits and loss are computed", min=1)
]
FrozenInputs = Annotated[
    bool | None, typer.Option(help="training with quantised weights by bitsandbytes before 0.43.2")
]
LegacyPytorch = Annotated[bool | None, typer.Option(help="training with PyTorch older than 1.11")]
SequenceParallel = Annotated[
    bool | None, typer.Option(help="tensor-parallel devices also divide norms and residuals")
]
Logits = Annotated[
    str | None,
    typer.Option(
        help="positions whose logits are computed: last (default of text generators), all"
    ),
]
CacheTokens = Annotated[
    int | None,
    typer.Option(help="tokens per sequence in the key-value cache [those of the graph]", min=0),
]
CachePrecision = Annotated[
    str | None, typer.Option(help="number format of the key-value cache [as the run]")
]
JoinedCache = Annotated[
    bool | None,
    typer.Option(help="every step of generation copies the key-value cache into new tensors"),
]
PowerLimit = Annotated[float | None, typer.Option(help="power limit set on the device, W", min=1.0)]
Json = Annotated[bool, typer.Option("--json", help="print one JSON object")]
Picture = Annotated[
    Path | None,
    typer.Option("--picture", help="file (.svg, .png, .pdf) to draw the parts of the answer into"),
]
Explain = Annotated[
    bool, typer.Option("--explain", help="also print bounds, breakdowns and all limits")
]


def devices_known() -> "DeviceStore":
    """The catalogue and the registered devices."""
    from forerun.service.settings import Settings
    from forerun.service.stores.devices import DeviceStore
    from forerun.service.stores.places import place_of

    return DeviceStore(place_of(Settings.load()) / "devices")


def in_use(
    devices: "DeviceStore",
    workload: str | Collection[str],
    asked: "Iterable[Device] | None" = None,
) -> "InUse":
    """The predictor in use, with the parts that a question needs.

    Args:
        devices: the catalogue and the registered devices.
        workload: kind of the workloads that the question is about, or several.
        asked: devices that it is about; None for any.
    """
    from forerun.models.answers.in_use import InUse
    from forerun.models.catalog import Scope
    from forerun.service.loading import load_predictors
    from forerun.service.settings import Settings
    from forerun.service.stores.places import is_used, place_of

    settings = Settings.load()
    if is_used(place_of(settings) / "measurements"):
        from forerun.service.adaptation.predictor_in_use import in_use_of

        # Measurements of all kinds adapt the predictors of all kinds.
        return in_use_of(settings, load_predictors(settings), devices)
    kinds = None if asked is None else frozenset(device.kind for device in asked)
    about = frozenset({workload} if isinstance(workload, str) else workload)
    if "llm_deployment" in about:
        # The power of a deployment is that of served models.
        about |= {"llm_serving"}
    scope = Scope(about, kinds)
    return InUse(load_predictors(settings, scope))


def one_of(option: str, value: str, known: Sequence[str]) -> Any:
    """The given value, after checking that it is one of the known ones.

    Raises:
        InputError: it is not; the message lists the known ones.
    """
    if value not in known:
        raise InputError(f"--{option} {value!r} is none of {', '.join(known)}.")
    return value


def checked(given: Mapping[str, str]) -> dict[str, Any]:
    """The given options, after checking each against its list of valid values.

    Raises:
        InputError: a value is not valid; the message lists the valid ones.
    """
    kinds = {
        "precision": workloads.NumberFormat,
        "phase": workloads.Phase,
        "runtime": runs.Runtime,
        "layout": runs.Layout,
    }
    return {name: one_of(name, value, get_args(kinds[name])) for name, value in given.items()}


def engine_of(name: EngineName) -> AbstractContextManager["Engine"]:
    """The engine that does fits, while the context lasts.

    Raises:
        MissingExtra: `ray` without the extra of that name.
        InputError: no cluster answers at RAY_ADDRESS.
    """
    from forerun.training.engines.named import engine_named

    return engine_named(name)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a network is run, as given on the command line. Each field is an option."""

    batch_size: BatchSize = None
    precision: Precision = "fp32"
    phase: Phase = "inference"
    runtime: UsualRuntime = None
    threads: Threads = None
    instances: Instances = 1
    layout: Layout = "nchw"
    sequence_length: SequenceLength = None
    image_size: ImageSize = None
    shape: Shapes = None


@dataclass(frozen=True, kw_only=True)
class SetUpOptions(RunOptions):
    """How a network is run, trained and kept in memory. Each field is an option."""

    power_limit: PowerLimit = None
    optimizer: Optimizer = None
    checkpoint_segments: Segments = None
    accumulation: Accumulation = None
    lora_rank: LoraRank = None
    data_parallel: DataParallel = None
    tensor_parallel: TensorParallel = None
    pipeline_parallel: PipelineParallel = None
    zero_stage: ZeroStage = None
    attention: AttentionKind = None
    dropout: Dropout = None
    checkpoint_blocks: CheckpointBlocks = None
    optimizer_kernel: OptimizerKernel = None
    lora_targets: LoraTargets = None
    frozen_weights: FrozenWeights = None
    adapter_precision: AdapterPrecision = None
    frozen_inputs: FrozenInputs = None
    loss_chunks: LossChunks = None
    legacy_pytorch: LegacyPytorch = None
    sequence_parallel: SequenceParallel = None
    logits: Logits = None
    cache_tokens: CacheTokens = None
    cache_precision: CachePrecision = None
    joined_cache: JoinedCache = None


def takes_run(verb: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter `run` is replaced by one option for each field of its class.

    Args:
        verb: function with a parameter `run: RunOptions` or `run: SetUpOptions`.
    """
    signature = inspect.signature(verb)
    own = dict(signature.parameters)
    options_class = own.pop("run").annotation
    names = [field.name for field in fields(options_class)]

    @wraps(verb)
    def command(**given: Any) -> None:
        run = options_class(**{name: given.pop(name) for name in names})
        verb(**given, run=run)

    kind = inspect.Parameter.KEYWORD_ONLY
    options = [
        inspect.Parameter(field.name, kind, default=field.default, annotation=field.type)
        for field in fields(options_class)
    ]
    parameters = [parameter.replace(kind=kind) for parameter in own.values()]
    changed = signature.replace(parameters=[*parameters, *options])
    command.__signature__ = changed  # type: ignore[attr-defined]
    return command
