"""Closed-form time of a static batch, and features of one.

All requests of a static batch start together and have equal lengths: their prompts are processed
first, then every iteration decodes one token of each. Requests whose keys and values do not fit in
memory wait until the others have ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from forerun.data.columns import Column, Matrix
from forerun.data.device import Device
from forerun.data.language_models.deployment import LlmDeployment
from forerun.data.language_models.feed_forward import Experts
from forerun.data.query import Query
from forerun.features.llm_serving.iteration import Iterations
from forerun.features.llm_serving.memory import pool_memory
from forerun.features.llm_serving.operators import parameter_counts
from forerun.features.llm_serving.step import WorkerTime

FEATURES: Final = (
    "log_devices",
    "log_sequences",
    "log_chunk_tokens",
    "log_output_tokens",
    "log_parameters",
    "log_cache_bytes_per_token",
    "log_experts",
    "log_cache_share",
    "undivided_attention",
    "log_seconds",
)
"""Logarithms of sizes, and of the closed-form time. `log_chunk_tokens` is 0 where prompts are
processed whole; `log_cache_share` is that of the cache's bytes over those of the weights;
`undivided_attention` is 1 where attention of decoded tokens in vLLM would not divide a sequence
into parts that are computed in parallel."""
PARALLEL_HEADS: Final = 512
"""Sequences times heads of a device up to which paged attention in vLLM divides sequences, and
tokens of one part: csrc/attention, `paged_attention_v1` and `paged_attention_v2`."""
MOST_CACHE_SHARE: Final = 20.0
LEAST_CACHE_SHARE: Final = 0.007


@dataclass(frozen=True)
class StaticBatches:
    """n static batches.

    Attributes:
        seconds: (n,) closed-form time from the start of the batch to its last token.
        features: (n, features) columns `FEATURES`.
    """

    seconds: Column
    features: Matrix

    @classmethod
    def of(cls, queries: Sequence[Query]) -> Self:
        """Time and features of n deployments; `load.concurrency` is the size of the batch.

        Raises:
            UnknownBandwidth, UnknownPrecision: a device's sheet lacks a figure.
        """
        found = [_batch(query.deployment, query.device) for query in queries]
        features = np.array([row for _, row in found]).reshape(len(found), len(FEATURES))
        return cls(np.array([seconds for seconds, _ in found]), features)


def _batch(deployment: LlmDeployment, device: Device) -> tuple[float, list[float]]:
    load, model, engine = deployment.load, deployment.model, deployment.engine
    size, chunk = load.concurrency or 1.0, engine.max_batched_tokens
    memory = pool_memory(
        model, device, load, replace(engine, max_batched_tokens=None), deployment.pool, size
    )
    at_once = min(size, max(memory.largest_concurrency, 1.0))
    prompts = at_once * load.input_tokens
    chunks = 1.0 if chunk is None else max(prompts / chunk, 1.0)
    pairs = prompts * (load.input_tokens + 1.0) / 2.0
    context = at_once * (load.input_tokens + load.output_tokens / 2.0)
    iterations = Iterations(
        prefill_tokens=np.array([prompts / chunks, 0.0]),
        prefill_pairs=np.array([pairs / chunks, 0.0]),
        prefill_sequences=np.array([at_once, 0.0]),
        decode_sequences=np.array([0.0, at_once]),
        decode_context=np.array([0.0, context]),
    )
    prefill, decode = WorkerTime.of(deployment, device).seconds(iterations)
    seconds = size / at_once * (chunks * prefill + load.output_tokens * decode)
    return float(seconds), [*_features(deployment), float(np.log(seconds))]


def _features(deployment: LlmDeployment) -> list[float]:
    load, model = deployment.load, deployment.model
    size, chunk = load.concurrency or 1.0, deployment.engine.max_batched_tokens
    context = load.input_tokens + load.output_tokens
    weights, _ = parameter_counts(model)
    cache = max(model.cache_bytes(int(context)) / context, 1.0)
    parts = [part for one in model.layers for part in one.feed_forward]
    experts = max(
        (part.experts for part in parts if isinstance(part, Experts)),
        default=1,
    )
    share = 0.75 * size * context * cache / model.weight_bytes()
    heads = max((getattr(one.mixer, "query_heads", 0) for one in model.layers), default=0)
    busy = size * heads / deployment.pool.parallelism.tensor > PARALLEL_HEADS
    return [
        *(float(np.log(value)) for value in (deployment.devices, size, chunk or 1.0)),
        *(float(np.log(value)) for value in (load.output_tokens, weights, cache, experts)),
        float(np.log(np.clip(share, LEAST_CACHE_SHARE, MOST_CACHE_SHARE))),
        float(busy and context > PARALLEL_HEADS),
    ]
