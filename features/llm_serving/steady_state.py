"""Latencies of a deployment in steady state, in closed form.

A data-parallel rank decodes 1 + x sequences where a request sees x others. All that follows from x
(time per token, waiting, rate) is computed on a grid of x; closed loops are solved for the number
of requests in flight and open loops for the arrival rate, by interpolation.

Prompts delay decoding: while a request writes its tokens, about x other prompts are processed
(Little's law). Prompts wait for each other as in an M/G/1 queue.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from forerun.data.columns import Column
from forerun.data.device import Device
from forerun.data.language_models.deployment import Engine, LlmDeployment
from forerun.features.llm_serving.engine_settings import Limits
from forerun.features.llm_serving.iteration import Iterations
from forerun.features.llm_serving.step import Rates, WorkerTime

POINTS: Final = 16
FEWEST: Final = 0.02
BUSIEST: Final = 0.98
"""Largest utilisation of workers for prompts of their own that the queue's formula is used for."""
FIRST_WAVE: Final = 0.1
"""Share of the requests of a closed loop that start together, as in a benchmark of ten requests for
each that is in flight."""


@dataclass(frozen=True, slots=True)
class SteadyState:
    """A deployment in steady state; times in seconds.

    Attributes:
        others: other sequences that decode on the same rank as a request.
        tpot: time for each token after the first.
        service: time to the first token without queueing.
        waiting: further time to the first token, by queueing.
        requests_per_s: requests answered, all devices together.
        busy: share of its time that a rank spends on prompts.
        overload: whether requests arrive faster than they can be answered.
        held: whether requests wait for a place among the sequences of an iteration.
        fits: whether weights and one sequence fit the memory.
        decode: part of an iteration -> its time in decoding.
        prefill: part of an iteration -> its further time for one prompt.
        iterations: number of iterations that a prompt is divided over.
    """

    others: float
    tpot: float
    service: float
    waiting: float
    requests_per_s: float
    busy: float
    overload: bool
    held: bool
    fits: bool
    decode: Mapping[str, float]
    prefill: Mapping[str, float]
    iterations: float

    @property
    def ttft(self) -> float:
        """Time to the first token with queueing, seconds."""
        return self.service + self.waiting


@dataclass(frozen=True, slots=True)
class _Grid:
    """Quantities of one rank at g numbers of other sequences, shape (g,), seconds.

    Attributes:
        others: other sequences that decode.
        decode, prefill: as in `SteadyState`, by part.
        tpot: time for each token after the first.
        work: time that a prompt occupies the rank.
        service: time to the first token without queueing.
        waiting: waiting of prompts for each other.
        rate: requests a second of all ranks.
        busy: share of the time spent on prompts.
    """

    others: Column
    decode: Mapping[str, Column]
    prefill: Mapping[str, Column]
    tpot: Column
    work: Column
    service: Column
    waiting: Column
    rate: Column
    busy: Column


def steady_state(
    deployment: LlmDeployment, device: Device, rates: Rates | None = None
) -> SteadyState:
    """Latencies, rate and parts of times of a deployment on devices of one kind.

    Args:
        deployment: model, load, engine, and devices of each phase.
        device: each of the devices.
        rates: shares of the sheet's figures that are reached.

    Raises:
        UnknownBandwidth, UnknownPrecision: the device's sheet lacks a figure.
    """
    limits = Limits.of(deployment, device, deployment.pool.parallelism)
    most = max(limits.sequences - 1.0, FEWEST)
    others = _others(most)
    together = deployment.prefill is None
    grid = (_together if together else _apart)(deployment, device, others, limits, rates)
    at, over = _solved(deployment, grid)
    found = {name: _at(getattr(grid, name), at) for name in _SCALARS}
    waiting, rate = _waiting_and_rate(deployment, found, over=over)
    return SteadyState(
        found["others"],
        found["tpot"],
        found["service"],
        waiting,
        rate,
        found["busy"],
        over and deployment.load.concurrency is None,
        over,
        limits.fits,
        {part: _at(column, at) for part, column in grid.decode.items()},
        {part: _at(column, at) for part, column in grid.prefill.items()},
        _chunks(deployment, limits.tokens, most),
    )


def _others(most: float) -> Column:
    """Numbers of other sequences of a grid: none, and a geometric series; shape (g,)."""
    return np.append(0.0, FEWEST * (most / FEWEST) ** _EXPONENTS)


_EXPONENTS: Final = np.linspace(0.0, 1.0, POINTS - 1)


def _solved(deployment: LlmDeployment, grid: _Grid) -> tuple[float, bool]:
    """Position on the grid where its load is the deployment's, and whether the load is larger."""
    load = deployment.load
    if load.concurrency is None:
        rate = load.requests_per_s or 0.0
        return _position(grid.rate, rate), bool(rate > grid.rate.max())
    ranks = deployment.pool.workers * deployment.pool.parallelism.attention_data
    decoding = _answer_tokens(deployment) * grid.tpot
    # The request itself, and for each that decodes on a rank those before their first token.
    flight = 1.0 + ranks * grid.others * (1.0 + (grid.service + grid.waiting) / decoding)
    return _position(flight, load.concurrency), bool(load.concurrency > flight.max())


def _waiting_and_rate(
    deployment: LlmDeployment, found: Mapping[str, float], *, over: bool
) -> tuple[float, float]:
    """Waiting before the first token, seconds, and requests a second of all devices.

    Args:
        deployment: the deployment.
        found: solution on the grid, by the names of its fields.
        over: whether the load is larger than what the grid covers.
    """
    load, waiting = deployment.load, found["waiting"]
    if load.concurrency is None:
        rate = load.requests_per_s or 0.0
        return waiting, min(rate, found["rate"]) if over else rate
    others = max(load.concurrency - 1.0, 0.0) / (2.0 * _prefill_ranks(deployment))
    waiting += FIRST_WAVE * others * found["work"]
    answer = _answer_tokens(deployment) * found["tpot"]
    if over and found["rate"] > 0.0:
        # By Little's law a cycle takes as long as all requests in flight need.
        waiting = max(waiting, load.concurrency / found["rate"] - answer - found["service"])
    return waiting, load.concurrency / (found["service"] + waiting + answer)


def _answer_tokens(deployment: LlmDeployment) -> float:
    """Tokens after the first, of which a request has at least one here."""
    return max(deployment.load.output_tokens - 1.0, 1.0)


_SCALARS: Final = ("others", "tpot", "work", "service", "waiting", "rate", "busy")


def _position(rising: Column, value: float) -> float:
    """Where a value lies between the points of a grid, as a fraction of points."""
    return float(np.interp(value, np.maximum.accumulate(rising), np.arange(len(rising))))


def _at(column: Column, position: float) -> float:
    """A column at a fraction of points, by linear interpolation."""
    low = min(int(position), len(column) - 2)
    share = position - low
    return float(column[low] * (1.0 - share) + column[low + 1] * share)


def _together(
    deployment: LlmDeployment,
    device: Device,
    others: Column,
    limits: Limits,
    rates: Rates | None,
) -> _Grid:
    """Prompts and decoding on the same workers."""
    stages = deployment.pool.parallelism.pipeline
    worker = WorkerTime.of(deployment, device, rates=rates)
    chunks = _chunks(deployment, limits.tokens, 0.0)
    g = len(others)
    decoding = _decode(deployment, (1.0 + others) / stages)
    prompt = _prompt(deployment, chunks, g)
    beside = _decode(deployment, others / stages)
    mixed = _joined(prompt, beside) if _mixes(deployment.engine) else prompt
    parts = worker.parts(_stacked(decoding, mixed, beside))
    decode = {name: column[:g] for name, column in parts.items()}
    shared = np.minimum(others, 1.0) if _mixes(deployment.engine) else 0.0
    prefill = {
        name: chunks * (column[g : 2 * g] - shared * column[2 * g :])
        for name, column in parts.items()
    }
    accepted = tokens_per_iteration(deployment.engine)
    step = sum(decode.values()) / accepted
    work = np.maximum(sum(prefill.values()), 1e-9)
    output = _answer_tokens(deployment)
    tpot = step + others * work / stages / output
    rate_of_rank = others / (output * tpot)
    busy = np.minimum(rate_of_rank * work / stages, BUSIEST)
    waiting = _waiting(deployment, busy, work / stages)
    # The current iteration ends before a prompt begins, and mixed iterations decode as well.
    service = work + step * accepted * (0.5 * np.minimum(others, 1.0) + chunks * shared)
    ranks = deployment.pool.workers * deployment.pool.parallelism.attention_data
    rate = ranks * rate_of_rank
    return _Grid(others, decode, prefill, tpot, work / stages, service, waiting, rate, busy)


def _apart(
    deployment: LlmDeployment,
    device: Device,
    others: Column,
    limits: Limits,
    rates: Rates | None,
) -> _Grid:
    """Prompts and decoding on workers of their own, which hand over caches."""
    load, pool, first = deployment.load, deployment.pool, deployment.prefill
    assert first is not None
    g, stages = len(others), pool.parallelism.pipeline
    decoding = _decode(deployment, (1.0 + others) / stages)
    decode = WorkerTime.of(deployment, device, rates=rates).parts(decoding)
    worker = WorkerTime.of(deployment, device, phase="prefill", rates=rates)
    chunks = _chunks(deployment, limits.tokens, 0.0)
    alone = worker.parts(_prompt(deployment, chunks, 1))
    prefill = {name: np.repeat(chunks * column, g) for name, column in alone.items()}
    tpot = sum(decode.values()) / tokens_per_iteration(deployment.engine)
    work = np.asarray(sum(prefill.values())) / first.parallelism.pipeline
    ranks = pool.workers * pool.parallelism.attention_data
    rate = ranks * others / (_answer_tokens(deployment) * tpot)
    servers = _prefill_ranks(deployment)
    busy = rate * work / servers
    rate = np.where(busy > BUSIEST, BUSIEST * servers / work, rate)
    busy = np.minimum(busy, BUSIEST)
    handed = deployment.model.cache_bytes(int(load.input_tokens)) / worker.sheet.link
    service = work * first.parallelism.pipeline + handed + tpot
    waiting = _waiting(deployment, busy, work)
    return _Grid(others, decode, prefill, np.asarray(tpot), work, service, waiting, rate, busy)


def _prefill_ranks(deployment: LlmDeployment) -> int:
    pool = deployment.prefill or deployment.pool
    return pool.workers * pool.parallelism.attention_data


def _waiting(deployment: LlmDeployment, busy: Column, work: Column) -> Column:
    """Mean waiting in an M/G/1 queue, whose service varies as the lengths of prompts do."""
    variation = 1.0 + deployment.load.input_variation**2
    return np.asarray(busy / (1.0 - busy) * work * variation / 2.0)


def _mixes(engine: Engine) -> bool:
    """Whether one iteration holds prompts and decoded tokens; SGLang's do not by default."""
    return engine.chunked_prefill and engine.name != "sglang"


def uncached_tokens(deployment: LlmDeployment) -> float:
    """Tokens of a prompt that are not in the prefix cache, at least one."""
    load = deployment.load
    return max(load.input_tokens * (1.0 - load.cached_share), 1.0)


def _chunks(deployment: LlmDeployment, tokens: float, decoding: float) -> float:
    """Iterations that a prompt is divided over."""
    room = max(tokens - decoding, tokens / 4.0)
    return float(np.ceil(uncached_tokens(deployment) / room))


def tokens_per_iteration(engine: Engine) -> float:
    """Tokens that a sequence gains in an iteration: one, and the accepted ones of the draft."""
    return 1.0 + sum(engine.draft_acceptance**k for k in range(1, engine.draft_tokens + 1))


def _decode(deployment: LlmDeployment, sequences: Column) -> Iterations:
    """Iterations that decode."""
    load, none = deployment.load, np.zeros_like(sequences)
    context = load.input_tokens + load.output_tokens / 2.0
    return Iterations(none, none, none, sequences, sequences * context)


def _prompt(deployment: LlmDeployment, chunks: float, points: int) -> Iterations:
    """The mean iteration of one prompt, at each point."""
    tokens = uncached_tokens(deployment)
    cached = deployment.load.input_tokens - tokens
    pairs = tokens * max(cached, 0.0) + tokens * (tokens + 1.0) / 2.0
    none = np.zeros(points)
    return Iterations(none + tokens / chunks, none + pairs / chunks, none + 1 / chunks, none, none)


def _joined(one: Iterations, other: Iterations) -> Iterations:
    return Iterations(*(getattr(one, f) + getattr(other, f) for f in _FIELDS))


def _stacked(*several: Iterations) -> Iterations:
    return Iterations(*(np.concatenate([getattr(one, f) for one in several]) for f in _FIELDS))


_FIELDS: Final = tuple(Iterations.__dataclass_fields__)
