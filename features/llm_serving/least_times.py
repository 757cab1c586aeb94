"""Least times that the spec sheet of a device allows a deployment, whatever its software does.

A token takes at least the time to read the weights and the caches that it needs at the full
bandwidth, or that of its arithmetic at the peak; a prompt takes that of its own products, and so
does a token of many that are decoded together. Nothing is counted for communication, launches,
activations and the host.
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
"""Prompts of one iteration, of whose time each has no more than its arithmetic."""
TOGETHER: Final = 1e6
"""Tokens that are decoded together, of whose time each has no more than its arithmetic."""
PRODUCTS: Final = ("dense", "experts")
COUNTED: Final = ("dense", "experts", "prefill_attention", "decode_attention", "states")


@dataclass(frozen=True, slots=True)
class LeastTimes:
    """Least times of n deployments, each of shape (n,), seconds.

    Attributes:
        tpot: time for each token after the first.
        ttft: time to the first token.
        prompt: time that a rank works for each of many prompts that share iterations.
        token: time that it works for each of many tokens that are decoded together, on products
            with weights alone.
    """

    tpot: Column
    ttft: Column
    prompt: Column
    token: Column


@dataclass(frozen=True, slots=True)
class LeastTime:
    """Least times of iterations of one worker.

    Attributes:
        worker: the worker, with the rates of the sheet.
    """

    worker: WorkerTime

    @classmethod
    def of(cls, deployment: LlmDeployment, device: Device, *, phase: Phase = "both") -> Self:
        """As `WorkerTime.of`, at the sheet's rates and without drafted tokens."""
        worker = WorkerTime.of(deployment, device, phase=phase, rates=PEAK)
        return cls(replace(worker, drafted=0))

    def seconds(self, iterations: Iterations) -> Column:
        """Least time of each iteration, shape (n,), seconds."""
        return _sum(self.worker.parts(iterations), COUNTED)


def least_times(queries: Sequence[Query], sequences: Column) -> LeastTimes:
    """The least times of n deployments.

    Args:
        queries: deployments and their devices.
        sequences: sequences that each rank decodes together on average, shape (n,). Where prompts
            have workers of their own, a token is taken to be decoded alone.

    Raises:
        UnknownBandwidth, UnknownPrecision: a device's sheet lacks a figure.
    """
    tpot, ttft, prompt, token = np.zeros((4, len(queries)))
    setups = [(q.deployment.model, q.deployment.pool, q.deployment.prefill, q.device)
              for q in queries]  # fmt: skip
    for rows in groups_of(setups).values():
        own = [queries[row] for row in rows]
        deployment, device = own[0].deployment, own[0].device
        alone = np.ones(len(rows)) if deployment.prefill else sequences[rows]
        stages = deployment.pool.parallelism.pipeline
        decodes = [_decode(own, at) for at in (alone, np.full(len(rows), TOGETHER * stages))]
        prompts = [_prompts(own), _prompts(own, MANY)]
        worker = LeastTime.of(deployment, device).worker
        first = LeastTime.of(deployment, device, phase="prefill").worker
        each, many, whole, shared = worker.parts_with(decodes, first, prompts)
        tpot[rows] = _sum(each, COUNTED) / [
            tokens_per_iteration(query.deployment.engine) for query in own
        ]
        token[rows] = _sum(many, PRODUCTS) / TOGETHER
        ttft[rows] = _sum(whole, COUNTED)
        prompt[rows] = _sum(shared, COUNTED) / MANY
    return LeastTimes(tpot, ttft, prompt, token)


def _sum(parts: Mapping[str, Column], counted: Sequence[str]) -> Column:
    """Least time of each iteration, shape (n,), seconds, of some of its parts."""
    return np.asarray(sum(parts[part] for part in counted))


def _decode(queries: Sequence[Query], sequences: Column) -> Iterations:
    """One iteration of decoding of each deployment, without drafted tokens and shared prefixes."""
    stages = queries[0].deployment.pool.parallelism.pipeline
    context = np.array([
        uncached_tokens(query.deployment) + query.deployment.load.output_tokens / 2.0
        for query in queries
    ])  # fmt: skip
    none, at_once = np.zeros(len(queries)), np.maximum(sequences, 1.0) / stages
    return Iterations(none, none, none, at_once, at_once * context)


def _prompts(queries: Sequence[Query], number: float = 1.0) -> Iterations:
    """The whole of a number of prompts of each deployment in one iteration."""
    tokens = np.array([uncached_tokens(query.deployment) for query in queries])
    cached = np.array([query.deployment.load.input_tokens for query in queries]) - tokens
    none = np.zeros(len(queries))
    pairs = tokens * np.maximum(cached, 0.0) + tokens * (tokens + 1.0) / 2.0
    return Iterations(number * tokens, number * pairs, none + number, none, none)
