"""Options of training and inference that several commands share."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from forerun.service.cli import options as o

Verb = TypeVar("Verb", bound=Callable[..., None])

SET_UP: Final[Mapping[str, Any]] = {
    "optimizer": o.Optimizer,
    "checkpoint_segments": o.Segments,
    "accumulation": o.Accumulation,
    "lora_rank": o.LoraRank,
    "data_parallel": o.DataParallel,
    "tensor_parallel": o.TensorParallel,
    "pipeline_parallel": o.PipelineParallel,
    "zero_stage": o.ZeroStage,
    "attention": o.AttentionKind,
    "dropout": o.Dropout,
    "checkpoint_blocks": o.CheckpointBlocks,
    "optimizer_kernel": o.OptimizerKernel,
    "lora_targets": o.LoraTargets,
    "frozen_weights": o.FrozenWeights,
    "adapter_precision": o.AdapterPrecision,
    "loss_chunks": o.LossChunks,
    "legacy_pytorch": o.LegacyPytorch,
    "sequence_parallel": o.SequenceParallel,
    "logits": o.Logits,
    "cache_tokens": o.CacheTokens,
    "cache_precision": o.CachePrecision,
    "joined_cache": o.JoinedCache,
}
"""Name of an option -> its type with help text; every option defaults to None."""


def takes_set_up(verb: Verb) -> Verb:
    """A command whose `**set_up` parameter is replaced by the options of `SET_UP`.

    Raises:
        ValueError: the command has no parameter `set_up`.
    """
    signature = inspect.signature(verb)
    given = dict(signature.parameters)
    if "set_up" not in given:
        raise ValueError(f"{verb.__qualname__} takes no **set_up")
    del given["set_up"]
    kind = inspect.Parameter.KEYWORD_ONLY
    options = (
        inspect.Parameter(name, kind, default=None, annotation=annotation)
        for name, annotation in SET_UP.items()
    )
    changed = signature.replace(parameters=[*given.values(), *options])
    verb.__signature__ = changed  # type: ignore[attr-defined]
    return verb
