"""Options of a run that several commands share, as one parameter of a command."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any

from forerun.service.cli import options as o


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a network is run, as given on the command line. Each field is an option."""

    batch_size: o.BatchSize = None
    precision: o.Precision = "fp32"
    phase: o.Phase = "inference"
    runtime: o.UsualRuntime = None
    threads: o.Threads = None
    instances: o.Instances = 1
    layout: o.Layout = "nchw"
    sequence_length: o.SequenceLength = None
    image_size: o.ImageSize = None
    shape: o.Shapes = None


@dataclass(frozen=True, kw_only=True)
class SetUpOptions(RunOptions):
    """How a network is run, trained and kept in memory. Each field is an option."""

    power_limit: o.PowerLimit = None
    optimizer: o.Optimizer = None
    checkpoint_segments: o.Segments = None
    accumulation: o.Accumulation = None
    lora_rank: o.LoraRank = None
    data_parallel: o.DataParallel = None
    tensor_parallel: o.TensorParallel = None
    pipeline_parallel: o.PipelineParallel = None
    zero_stage: o.ZeroStage = None
    attention: o.AttentionKind = None
    dropout: o.Dropout = None
    checkpoint_blocks: o.CheckpointBlocks = None
    optimizer_kernel: o.OptimizerKernel = None
    lora_targets: o.LoraTargets = None
    frozen_weights: o.FrozenWeights = None
    adapter_precision: o.AdapterPrecision = None
    frozen_inputs: o.FrozenInputs = None
    loss_chunks: o.LossChunks = None
    legacy_pytorch: o.LegacyPytorch = None
    sequence_parallel: o.SequenceParallel = None
    logits: o.Logits = None
    cache_tokens: o.CacheTokens = None
    cache_precision: o.CachePrecision = None
    joined_cache: o.JoinedCache = None


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
