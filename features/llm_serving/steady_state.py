"""Latencies of a deployment in steady state, in closed form.

A data-parallel rank decodes 1 + x sequences where a request sees x others. All that follows from x
(time per token, waiting, rate) is computed on a grid of x, which is solved by interpolation.

Prompts delay decoding: while a request writes its tokens, about x other prompts are processed
(Little's law). Prompts wait for each other as in an M/G/1 queue.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix
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


@dataclass(frozen=True, slots=True)
class SteadyStates:
    """A deployment in steady state with n loads: fields as those of `SteadyState`, each (n,)."""

    others: Column
    tpot: Column
    service: Column
    waiting: Column
    requests_per_s: Column
    busy: Column
    overload: Mask
    held: Mask
    fits: bool
    decode: Mapping[str, Column]
    prefill: Mapping[str, Column]
    iterations: float


@dataclass(frozen=True, slots=True)
class AnyLoad:
    """A deployment on devices of one kind in steady state, with any number or rate of requests.

    Attributes:
        deployment: model, lengths of requests, engine, and devices of each phase.
        grid: quantities of a rank at g numbers of other sequences.
        fits: whether weights and one sequence fit the memory.
        iterations: number of iterations that a prompt is divided over.
    """

    deployment: LlmDeployment
    grid: _Grid
    fits: bool
    iterations: float

    @classmethod
    def of(cls, deployment: LlmDeployment, device: Device, rates: Rates | None = None) -> Self:
        """The deployment with any other `concurrency` or `requests_per_s`.

        Args:
            deployment: model, lengths of requests, engine, and devices of each phase.
            device: each of the devices.
            rates: shares of the sheet's figures that are reached.

        Raises:
            UnknownBandwidth, UnknownPrecision: the device's sheet lacks a figure.
        """
        limits = Limits.of(deployment, device, deployment.pool.parallelism)
        most = max(limits.sequences - 1.0, FEWEST)
        make = _together if deployment.prefill is None else _apart
        grid = make(deployment, device, _others(most), limits, rates)
        chunks = _chunks(deployment, limits.tokens, most)
        return cls(deployment, grid, limits.fits, chunks)

    def at(self, concurrency: Column, requests_per_s: Column) -> SteadyStates:
        """The steady states with n loads.

        Args:
            concurrency: (n,) requests in flight; NaN where they arrive at a rate of their own.
            requests_per_s: (n,) that rate; NaN where the number in flight is given.
        """
        positions, over = self._solved(concurrency, requests_per_s)
        grid = self.grid
        columns = [*(getattr(grid, name) for name in _SCALARS)]
        columns += [*grid.decode.values(), *grid.prefill.values()]
        every = iter(_at(np.stack(columns), positions))
        found = {name: next(every) for name in _SCALARS}
        waiting, rate = _waiting_and_rate(self.deployment, found, concurrency, requests_per_s, over)
        return SteadyStates(
            found["others"],
            found["tpot"],
            found["service"],
            waiting,
            rate,
            found["busy"],
            over & np.isnan(concurrency),
            over,
            self.fits,
            {part: next(every) for part in grid.decode},
            {part: next(every) for part in grid.prefill},
            self.iterations,
        )

    def _solved(self, concurrency: Column, requests_per_s: Column) -> tuple[Column, Mask]:
        """Positions on the grid where its load is each of n, and whether the load is larger."""
        deployment, grid = self.deployment, self.grid
        ranks = deployment.pool.workers * deployment.pool.parallelism.attention_data
        decoding = _answer_tokens(deployment) * grid.tpot
        # The request itself, and for each that decodes on a rank those before their first token.
        flight = 1.0 + ranks * grid.others * (1.0 + (grid.service + grid.waiting) / decoding)
        closed = np.isfinite(concurrency)
        positions = np.where(
            closed, _positions(flight, concurrency), _positions(grid.rate, requests_per_s)
        )
        over = np.where(closed, concurrency > flight.max(), requests_per_s > grid.rate.max())
        return positions, over


def steady_state(
    deployment: LlmDeployment, device: Device, rates: Rates | None = None
) -> SteadyState:
    """Latencies, rate and parts of times of a deployment; arguments and errors of `AnyLoad.of`."""
    load = deployment.load
    arriving = np.nan if load.concurrency is not None else load.requests_per_s or 0.0
    loads = np.array([[np.nan if load.concurrency is None else load.concurrency], [arriving]])
    found = AnyLoad.of(deployment, device, rates).at(*loads)
    return SteadyState(
        others=float(found.others[0]),
        tpot=float(found.tpot[0]),
        service=float(found.service[0]),
        waiting=float(found.waiting[0]),
        requests_per_s=float(found.requests_per_s[0]),
        busy=float(found.busy[0]),
        overload=bool(found.overload[0]),
        held=bool(found.held[0]),
        fits=found.fits,
        decode={part: float(column[0]) for part, column in found.decode.items()},
        prefill={part: float(column[0]) for part, column in found.prefill.items()},
        iterations=found.iterations,
    )


def _others(most: float) -> Column:
    """Numbers of other sequences of a grid: none, and a geometric series; shape (g,)."""
    return np.append(0.0, FEWEST * (most / FEWEST) ** _EXPONENTS)


_EXPONENTS: Final = np.linspace(0.0, 1.0, POINTS - 1)


def _waiting_and_rate(
    deployment: LlmDeployment,
    found: Mapping[str, Column],
    concurrency: Column,
    requests_per_s: Column,
    over: Mask,
) -> tuple[Column, Column]:
    """Waiting before the first token, seconds, and requests a second of all devices, each (n,).

    Args:
        deployment: the deployment.
        found: solutions on the grid, by the names of its fields, each (n,).
        concurrency: (n,) requests in flight, as in `AnyLoad.at`.
        requests_per_s: (n,) rates of arrivals, as there.
        over: (n,) whether the load is larger than what the grid covers.
    """
    closed, rate = np.isfinite(concurrency), found["rate"]
    others = np.maximum(concurrency - 1.0, 0.0) / (2.0 * _prefill_ranks(deployment))
    waiting = found["waiting"] + FIRST_WAVE * others * found["work"]
    answer = _answer_tokens(deployment) * found["tpot"]
    # By Little's law a cycle takes as long as all requests in flight need.
    with np.errstate(divide="ignore", invalid="ignore"):
        cycle = np.maximum(waiting, concurrency / rate - answer - found["service"])
    waiting = np.where(over & (rate > 0.0), cycle, waiting)
    answered = concurrency / (found["service"] + waiting + answer)
    arriving = np.where(over, np.minimum(requests_per_s, rate), requests_per_s)
    return np.where(closed, waiting, found["waiting"]), np.where(closed, answered, arriving)


def _answer_tokens(deployment: LlmDeployment) -> float:
    """Tokens after the first, of which a request has at least one here."""
    return max(deployment.load.output_tokens - 1.0, 1.0)


_SCALARS: Final = ("others", "tpot", "work", "service", "waiting", "rate", "busy")


def _positions(rising: Column, values: Column) -> Column:
    """Where n values lie between the points of a grid, as fractions of points, (n,)."""
    return np.interp(values, np.maximum.accumulate(rising), np.arange(len(rising)))


def _at(columns: Matrix, positions: Column) -> Matrix:
    """Columns at n fractions of points, by linear interpolation, (columns, n)."""
    low = np.minimum(positions.astype(np.intp), columns.shape[1] - 2)
    share = positions - low
    return np.asarray(columns[:, low] * (1.0 - share) + columns[:, low + 1] * share)


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
