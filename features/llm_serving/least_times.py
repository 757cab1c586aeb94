"""Lower bounds on the latencies of a deployment, from the device's spec sheet alone.

A token takes at least as long as reading the weights and caches it needs at full bandwidth, or as
its arithmetic at peak rate. In a large batch, a prompt or token takes at least its own arithmetic.
Communication, launches, activations and host time count as zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final, Self

import numpy as np

from forerun.data.columns import Column, groups_of
from forerun.data.device import Device
from forerun.data.language_models.deployment import LlmDeployment
from forerun.data.query import Query
from forerun.features.llm_serving.engine_settings import tokens_per_iteration, uncached_tokens
from forerun.features.llm_serving.iteration import Iterations
from forerun.features.llm_serving.releases import Rates
from forerun.features.llm_serving.step import Phase, WorkerTime

PEAK: Final = Rates(1.0, 1.0, (1.0, 1.0), (1.0, 1.0), inf, 1.0, 1.0, 1.0, *(0.0,) * 7)
MANY: Final = 1000.0
"""Prompts in an iteration so large that each costs only its arithmetic."""
TOGETHER: Final = 1e6
"""Sequences in a decode batch so large that each token costs only its arithmetic."""
PRODUCTS: Final = ("dense", "experts")
COUNTED: Final = ("dense", "experts", "prefill_attention", "decode_attention", "states")


@dataclass(frozen=True, slots=True)
class LeastTimes:
    """Lower bounds for n deployments, each of shape (n,), seconds.

    Attributes:
        tpot: time per output token after the first.
        ttft: time to first token.
        prompt: time of a rank per prompt, in a large batch of prompts.
        token: time of a rank per decoded token in a large batch, matrix products alone.
    """

    tpot: Column
    ttft: Column
    prompt: Column
    token: Column


@dataclass(frozen=True, slots=True)
class LeastTime:
    """Lower bounds on the iteration times of one worker.

    Attributes:
        worker: the worker, at spec-sheet rates.
    """

    worker: WorkerTime

    @classmethod
    def of(cls, deployment: LlmDeployment, device: Device, *, phase: Phase = "both") -> Self:
        """As `WorkerTime.of`, at spec-sheet rates and without speculative decoding."""
        worker = WorkerTime.of(deployment, device, phase=phase, rates=PEAK)
        return cls(replace(worker, drafted=0))

    def seconds(self, iterations: Iterations) -> Column:
        """Lower bound on the time of each iteration, shape (n,), seconds."""
        return _sum(self.worker.parts(iterations), COUNTED)


def least_times(queries: Sequence[Query], sequences: Column) -> LeastTimes:
    """Lower bounds for n deployments.

    Args:
        queries: deployments and their devices.
        sequences: mean decode batch of each rank, shape (n,); disaggregated deployments use 1.

    Raises:
        UnknownBandwidth, UnknownPrecision: a device's spec sheet lacks a figure.
    """
    tpot, ttft, prompt, token = np.zeros((4, len(queries)))
    setups = [(q.deployment.model, q.deployment.pool, q.deployment.prefill, q.device)
              for q in queries]  # fmt: skip
    for rows in groups_of(setups).values():
        group = [queries[row] for row in rows]
        deployment, device = group[0].deployment, group[0].device
        batch = np.ones(len(rows)) if deployment.prefill else sequences[rows]
        stages = deployment.pool.parallelism.pipeline
        decodes = [_decode(group, at) for at in (batch, np.full(len(rows), TOGETHER * stages))]
        prompts = [_prompts(group), _prompts(group, MANY)]
        worker = LeastTime.of(deployment, device).worker
        first = LeastTime.of(deployment, device, phase="prefill").worker
        decode, large_decode, one_prompt, many_prompts = worker.parts_with(decodes, first, prompts)
        tpot[rows] = _sum(decode, COUNTED) / [
            tokens_per_iteration(query.deployment.engine) for query in group
        ]
        token[rows] = _sum(large_decode, PRODUCTS) / TOGETHER
        ttft[rows] = _sum(one_prompt, COUNTED)
        prompt[rows] = _sum(many_prompts, COUNTED) / MANY
    return LeastTimes(tpot, ttft, prompt, token)


def _sum(parts: Mapping[str, Column], counted: Sequence[str]) -> Column:
    """Time of the counted parts of each iteration, shape (n,), seconds."""
    return np.asarray(sum(parts[part] for part in counted))


def _decode(queries: Sequence[Query], sequences: Column) -> Iterations:
    """One decode iteration of each deployment, without draft tokens and shared prefixes."""
    stages = queries[0].deployment.pool.parallelism.pipeline
    context = np.array([
        uncached_tokens(query.deployment) + query.deployment.load.output_tokens / 2.0
        for query in queries
    ])  # fmt: skip
    none, at_once = np.zeros(len(queries)), np.maximum(sequences, 1.0) / stages
    return Iterations(none, none, none, at_once, at_once * context)


def _prompts(queries: Sequence[Query], number: float = 1.0) -> Iterations:
    """One iteration of each deployment that processes a number of whole prompts."""
    tokens = np.array([uncached_tokens(query.deployment) for query in queries])
    cached = np.array([query.deployment.load.input_tokens for query in queries]) - tokens
    none = np.zeros(len(queries))
    pairs = tokens * np.maximum(cached, 0.0) + tokens * (tokens + 1.0) / 2.0
    return Iterations(number * tokens, number * pairs, none + number, none, none)
