"""Options that several verbs take: the network, how it is run, and how it is trained."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from forerun.data import software as runs
from forerun.data import workload as workloads
from forerun.data.device import Device
from forerun.data.errors import InputError
from forerun.data.query import Query

if TYPE_CHECKING:
    from forerun.service.adaptation.predictor_in_use import InUse
    from forerun.service.stores.devices import DeviceStore

Source = Annotated[Path, typer.Argument(help=".onnx, .pt2, config.json, or graph .json")]
BatchSize = Annotated[int, typer.Option(help="samples in one run", min=1, max=65536)]
Precision = Annotated[str, typer.Option(help="fp32, tf32, fp16, bf16, amp, ...")]
Phase = Annotated[str, typer.Option(help="inference or training")]
UsualRuntime = Annotated[
    str | None,
    typer.Option(
        help="eager, compiled, reduce-overhead, torchscript, tensorrt, onnxruntime "
        "[onnxruntime for ONNX files on processors, else eager]"
    ),
]
Threads = Annotated[
    int | None, typer.Option(help="that compute, on a processor [as it was measured]", min=1)
]
Layout = Annotated[str, typer.Option(help="nchw or nhwc")]
SequenceLength = Annotated[
    int | None, typer.Option(help="bound to free sequence dimensions", min=1)
]
Optimizer = Annotated[
    str | None,
    typer.Option(help="none, sgd, momentum, adam, adamw (default), adafactor, adam8bit, adam4bit"),
]
Segments = Annotated[int | None, typer.Option(help="parts computed again; 0 for none", min=0)]
Accumulation = Annotated[int | None, typer.Option(help="micro-batches of a step", min=1)]
LoraRank = Annotated[int | None, typer.Option(help="adapters on linear layers", min=0)]
DataParallel = Annotated[int | None, typer.Option(help="devices with a batch each", min=1)]
TensorParallel = Annotated[int | None, typer.Option(help="devices a layer", min=1)]
PipelineParallel = Annotated[int | None, typer.Option(help="devices along the layers", min=1)]
ZeroStage = Annotated[
    int | None, typer.Option(help="shared: 1 slots, 2 gradients, 3 weights", min=0, max=3)
]
AttentionKind = Annotated[str | None, typer.Option(help="eager, sdpa (default), flash")]
Dropout = Annotated[float | None, typer.Option(help="probability [the graph's own]", min=0.0)]
CheckpointBlocks = Annotated[
    bool | None, typer.Option(help="compute every repeated block again in the backward pass")
]
OptimizerKernel = Annotated[str | None, typer.Option(help="foreach (default), fused")]
LoraTargets = Annotated[
    str | None, typer.Option(help="all_linear (default), attention, query_value")
]
FrozenWeights = Annotated[
    str | None, typer.Option(help="frozen weights as nf4, int8, ... [as the run]")
]
AdapterPrecision = Annotated[str | None, typer.Option(help="of adapters [as the run]")]
LossChunks = Annotated[int | None, typer.Option(help="parts of logits and loss", min=1)]
LegacyPytorch = Annotated[bool | None, typer.Option(help="trained by PyTorch before 1.11")]
SequenceParallel = Annotated[
    bool | None, typer.Option(help="devices that share a layer share norms and residuals, too")
]
Logits = Annotated[str | None, typer.Option(help="last (default of text generators), all")]
CacheTokens = Annotated[
    int | None, typer.Option(help="keys and values kept a sequence [those of the graph]", min=0)
]
CachePrecision = Annotated[str | None, typer.Option(help="of keys and values [as the run]")]
JoinedCache = Annotated[
    bool | None, typer.Option(help="every step of generation makes keys and values anew")
]
PowerLimit = Annotated[float | None, typer.Option(help="limit set on the device, W", min=1.0)]
Json = Annotated[bool, typer.Option("--json", help="one JSON object")]


def query_of(given: Mapping[str, Any]) -> Callable[[Device], Query]:
    """The question about any device.

    Args:
        given: what a verb was given, by the names above in small letters.

    Raises:
        InputError: an option takes no such value, or options contradict each other.
        UnreadableModel: the file is no network.
    """
    from forerun.features.readers import read_graph
    from forerun.service.schemas.training_options import INFERENCE_OPTIONS, OPTIONS, set_ups_of
    from forerun.service.schemas.workloads import operation_of, usual_runtime

    words = {name: given[name] for name in ("precision", "phase", "runtime", "layout")}
    check = checked({name: word for name, word in words.items() if word is not None})
    size = given["batch_size"]
    options = {name: given.get(name) for name in (*OPTIONS, *INFERENCE_OPTIONS)}
    set_ups = set_ups_of(check["phase"], size, options)
    graph = read_graph(given["source"], batch_size=size, sequence_length=given["sequence_length"])
    network = workloads.Network(graph, size, check["precision"], check["phase"], *set_ups)
    operation = operation_of(network, given.get("power_limit"))

    def about(device: Device) -> Query:
        runtime = check.get("runtime") or usual_runtime(graph, device)
        software = runs.Software(
            runtime=runtime, layout=check["layout"], threads=given.get("threads")
        )
        return Query(network, device, software, operation)

    return about


def answering() -> "tuple[DeviceStore, InUse]":
    """The devices known here, and the predictor in use."""
    from forerun.service.adaptation.predictor_in_use import in_use_of
    from forerun.service.loading import load_predictors
    from forerun.service.settings import Settings
    from forerun.service.stores.devices import DeviceStore

    settings = Settings.load()
    devices = DeviceStore(settings.home / "devices")
    return devices, in_use_of(settings, load_predictors(settings), devices)


def checked(given: Mapping[str, str]) -> dict[str, Any]:
    """Options that take one of a few words, once each does.

    Raises:
        InputError: one does not; the line says which words there are.
    """
    kinds = {
        "precision": workloads.NumberFormat,
        "phase": workloads.Phase,
        "runtime": runs.Runtime,
        "layout": runs.Layout,
    }
    for name, value in given.items():
        if value not in get_args(kinds[name]):
            raise InputError(f"--{name} {value!r} is none of {', '.join(get_args(kinds[name]))}.")
    return dict(given)
