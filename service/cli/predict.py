"""`forerun predict`: what will this network cost on these devices?"""

from typing import Annotated, Any

import typer

from forerun.service.cli import options as o
from forerun.service.cli.output import print_json


def predict(
    source: o.Source,
    device: Annotated[list[str], typer.Option(help="name; repeat for several")],
    batch_size: o.BatchSize = 1,
    precision: o.Precision = "fp32",
    phase: o.Phase = "inference",
    runtime: o.UsualRuntime = None,
    threads: o.Threads = None,
    layout: o.Layout = "nchw",
    sequence_length: o.SequenceLength = None,
    optimizer: o.Optimizer = None,
    checkpoint_segments: o.Segments = None,
    accumulation: o.Accumulation = None,
    lora_rank: o.LoraRank = None,
    data_parallel: o.DataParallel = None,
    tensor_parallel: o.TensorParallel = None,
    pipeline_parallel: o.PipelineParallel = None,
    zero_stage: o.ZeroStage = None,
    attention: o.AttentionKind = None,
    dropout: o.Dropout = None,
    checkpoint_blocks: o.CheckpointBlocks = None,
    optimizer_kernel: o.OptimizerKernel = None,
    lora_targets: o.LoraTargets = None,
    frozen_weights: o.FrozenWeights = None,
    adapter_precision: o.AdapterPrecision = None,
    loss_chunks: o.LossChunks = None,
    legacy_pytorch: o.LegacyPytorch = None,
    sequence_parallel: o.SequenceParallel = None,
    logits: o.Logits = None,
    cache_tokens: o.CacheTokens = None,
    cache_precision: o.CachePrecision = None,
    joined_cache: o.JoinedCache = None,
    power_limit: o.PowerLimit = None,
    json: o.Json = False,
) -> None:
    """Latency, memory, power and energy with 90 % intervals, and whether the memory is enough."""
    answers = _answers(locals())
    from forerun.service.cli.answer_table import show

    if json:
        print_json(answers[0] if len(answers) == 1 else {"answers": answers})
    else:
        show(source.name, answers)


def _answers(given: dict[str, Any]) -> list[dict[str, Any]]:
    """One answer for each device, in the order given."""
    from forerun.service.answer_content import answer_of
    from forerun.service.question import question_about

    about = o.query_of(given)
    devices, in_use = o.answering()
    chosen = [devices.get(name) for listed in given["device"] for name in listed.split(",")]
    return [answer_of(question_about(about(one)), in_use) for one in chosen]
