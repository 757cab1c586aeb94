"""Closed-form latency and throughput of deployments at any load, tabulated on a grid.

An iteration of a data-parallel rank decodes 1 + x sequences: a request's own and x others. The time
per output token, the queueing delay and the request rate all follow from x.

Prefill delays decode. By Little's law, x other requests arrive while a request decodes. Prompts
that arrived during its own prefill also delay it. They outnumber those still waiting when it ends,
because long iterations follow each other. Waiting prompts share an iteration: it takes all that
arrived during the previous one, up to its token budget; the rest queue.

On engines that process all prompts before they decode, closed-loop requests with answers of one
length start and end together (`in_step`): their prompts wait for each other and delay fewer tokens.
With chunked prefill, measured closed loops do not stay together.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Self

import numpy as np

from forerun.data.columns import Column, Matrix
from forerun.data.device import Device
from forerun.data.language_models.deployment import LlmDeployment
from forerun.features.llm_serving.comparable import in_step
from forerun.features.llm_serving.engine_settings import (
    Limits,
    mixes,
    tokens_per_iteration,
    uncached_tokens,
)
from forerun.features.llm_serving.iteration import Iterations
from forerun.features.llm_serving.step import PARTS, WorkerTime

WorkerOf = Callable[..., WorkerTime]
"""Deployment, device and phase -> iteration times of its workers, as `WorkerTime.of`."""
POINTS: Final = 16
FEWEST: Final = 0.02
BUSIEST: Final = 0.98
"""Highest prefill utilisation at which the queueing formulas are evaluated."""
FIRST_WAVE: Final = 0.2
"""Share of closed-loop requests that wait as if all had started at once. In benchmarks that send
ten requests per slot, a tenth do. The unfitted closed form predicts the time to first token of the
vLLM and TensorRT-LLM runs in `aiconfigurator_serving` best with 0.2 to 0.25."""
ROUNDS: Final = 8
"""Fixed-point iterations that solve for the request rate and the prompts per iteration."""
DAMPING: Final = 0.6
"""Damping factor of the backlog in the fixed-point iterations."""
SCALARS: Final = (
    *("others", "tpot", "interfering", "batch", "batch_prefill", "work", "service", "waiting"),
    *("rate", "busy", "in_flight"),
)
"""Scalar quantities of a grid:

- `others`: other sequences that decode on the rank;
- `tpot`: time per output token after the first;
- `interfering`: prompts of other requests processed while a request decodes;
- `batch`: prompts that share an iteration;
- `batch_prefill`: prefill time of the batch that a request's own prompt is in, over all its chunks;
- `work`: time that each prompt occupies the rank;
- `service`: time to first token without queueing;
- `waiting`: time that prompts wait for each other;
- `rate`: requests/s of all ranks;
- `busy`: share of time spent on prefill;
- `in_flight`: requests in flight on all ranks.
"""
QUANTITIES: Final = (
    *SCALARS,
    *(f"decode {part}" for part in PARTS),
    *(f"prefill {part}" for part in PARTS),
)
"""Rows of a grid: the scalars, the parts of a decode iteration, and what a prompt adds to each."""


@dataclass(frozen=True, slots=True)
class AnyLoad:
    """A deployment on devices of one kind, at any concurrency or arrival rate.

    Attributes:
        grid: (quantities, g) `QUANTITIES` of a rank at g numbers of other sequences, seconds.
        answer_tokens: output tokens after the first, at least one.
        prompt_ranks: data-parallel ranks that process prompts, over all workers.
        together: share of closed-loop requests that start together.
        fits: whether the weights and one sequence fit in memory.
        iterations: iterations that a prompt is split over.
    """

    grid: Matrix
    answer_tokens: float
    prompt_ranks: int
    together: float
    fits: bool
    iterations: float

    @classmethod
    def of_each(
        cls,
        deployments: Sequence[LlmDeployment],
        device: Device,
        worker_of: WorkerOf = WorkerTime.of,
    ) -> list[Self]:
        """Compute the grids of k deployments that differ only in the lengths of their requests.

        Args:
            deployments: k deployments, all or none of them `in_step`; their `concurrency` and
                `requests_per_s` have no other effect.
            device: the device type.
            worker_of: returns the iteration times of a deployment's workers.

        Raises:
            UnknownBandwidth, UnknownPrecision: the device's sheet lacks a figure.
        """
        first = deployments[0]
        limits = [Limits.of(one, device, first.pool.parallelism) for one in deployments]
        max_others = np.array([max(limit.sequences - 1.0, FEWEST) for limit in limits])[:, None]
        lengths = _Lengths.of(deployments)
        token_budget = limits[0].tokens
        make_grid = _colocated_grid if first.prefill is None else _disaggregated_grid
        workers = partial(worker_of, first, device)
        grid = make_grid(first, workers, _others(max_others), lengths, token_budget)
        prefill_pool = first.prefill or first.pool
        ranks = prefill_pool.workers * prefill_pool.parallelism.attention_data
        share = 1.0 if in_step(first) else FIRST_WAVE
        return [
            cls(np.ascontiguousarray(grid[:, row]), further, ranks, share, limit.fits, chunks)
            for row, (further, limit, chunks) in enumerate(
                zip(
                    lengths.further.ravel().tolist(),
                    limits,
                    lengths.chunks(token_budget, max_others).ravel().tolist(),
                    strict=True,
                )
            )
        ]


class _Lengths(NamedTuple):
    """Request lengths of k deployments, each (k, 1), tokens.

    Attributes:
        prompt: mean prompt length.
        uncached: prompt tokens that miss the prefix cache, at least one.
        answer: mean answer length.
        further: answer tokens after the first; at least one.
        variation: coefficient of variation of the prompt length.
        mean_over_median: mean over median answer length, assuming a log-normal distribution.
    """

    prompt: Column
    uncached: Column
    answer: Column
    further: Column
    variation: Column
    mean_over_median: Column

    @classmethod
    def of(cls, deployments: Sequence[LlmDeployment]) -> Self:
        """The request lengths of k deployments."""
        rows = [
            (
                one.load.input_tokens,
                uncached_tokens(one),
                one.load.output_tokens,
                max(one.load.output_tokens - 1.0, 1.0),
                one.load.input_variation,
                np.hypot(1.0, one.load.output_variation),
            )
            for one in deployments
        ]
        return cls(*np.array(rows, dtype=np.float64).T[:, :, None])

    def chunks(self, token_budget: float, decoding: Column | float) -> Column:
        """Iterations that a prompt is split over while `decoding` sequences decode."""
        room = np.maximum(token_budget - decoding, token_budget / 4.0)
        return np.asarray(np.ceil(self.uncached / room))

    def decode(self, sequences: Column) -> Iterations:
        """Iterations that decode (k, g) numbers of sequences, flattened."""
        none = np.zeros(sequences.size)
        context = self.prompt + self.answer / 2.0
        return Iterations(none, none, none, sequences.ravel(), (sequences * context).ravel())

    def prompts(self, number: Column) -> Iterations:
        """Iterations that process (k, g) numbers of prompts, or fractions of one, flattened."""
        cached = np.maximum(self.prompt - self.uncached, 0.0)
        pairs = self.uncached * cached + self.uncached * (self.uncached + 1.0) / 2.0
        none = np.zeros(number.size)
        tokens, pairs, prompts = (
            (each * number).ravel() for each in (self.uncached, pairs, np.ones_like(pairs))
        )
        return Iterations(tokens, pairs, prompts, none, none)

    def waiting(self, busy: Column, work: Column) -> Column:
        """Mean wait in an M/G/1 queue whose service time varies like the prompt length."""
        return np.asarray(busy / (1.0 - busy) * work * (1.0 + self.variation**2) / 2.0)


def _others(highest: Column) -> Column:
    """Numbers of other sequences on k grids: zero, then a geometric series; shape (k, g)."""
    rising = FEWEST * (highest / FEWEST) ** _EXPONENTS
    return np.concatenate([np.zeros_like(highest), rising], axis=1)


_EXPONENTS: Final = np.linspace(0.0, 1.0, POINTS - 1)


class _PrefillTime(NamedTuple):
    """Time that prompts add to an iteration, sampled at p numbers of prompts.

    Attributes:
        prompts: (p, k, g) numbers of prompts, at least one: either a single number, or one, the
            most that fit, and their geometric mean.
        seconds: (p, k, g) time that they add.
    """

    prompts: Matrix
    seconds: Matrix

    def at(self, batch: Column) -> Column:
        """Time added by (k, g) numbers of prompts, by linear interpolation."""
        if len(self.prompts) == 1:
            return np.asarray(self.seconds[0])
        one_s, some_s, full_s = self.seconds
        _, some, full = self.prompts
        with np.errstate(divide="ignore", invalid="ignore"):
            low = one_s + (some_s - one_s) * (batch - 1.0) / (some - 1.0)
            high = some_s + (full_s - some_s) * (batch - some) / (full - some)
        return np.asarray(np.where(batch > some, high, np.where(batch > 1.0, low, one_s)))


class _RankTimes(NamedTuple):
    """Iteration times of one pipeline stage of a rank that prefills and decodes, each (k, g).

    Attributes:
        step: time per output token of decode alone, through all stages, seconds.
        decoding: seconds of an iteration without prompts.
        shared: seconds of decode in an iteration with prompts.
        prefill: seconds that prompts add.
        max_prompts: prompts that fit in an iteration, at least one.
        chunks: iterations that a prompt is split over, at least one. Fractional, because other
            prompts share the last one.
        mixed: whether iterations with prompts also decode (chunked prefill).
        hold: iterations that the engine's settings hold a prompt back.
        decode_parts: part -> seconds of an iteration without prompts, through all stages.
        prefill_parts: part -> seconds that prompts add, through all stages.
    """

    step: Column
    decoding: Column
    shared: Column
    prefill: _PrefillTime
    max_prompts: Column
    chunks: Column
    mixed: bool
    hold: float
    decode_parts: Mapping[str, Column]
    prefill_parts: Mapping[str, _PrefillTime]

    @classmethod
    def of(
        cls,
        deployment: LlmDeployment,
        worker: WorkerTime,
        others: Column,
        lengths: _Lengths,
        token_budget: float,
    ) -> Self:
        """Times of a worker's iterations of at most `token_budget` tokens."""
        stages, mixed = deployment.pool.parallelism.pipeline, mixes(deployment.engine)
        left = token_budget - others * mixed
        room = np.maximum(left, token_budget / 4.0) / lengths.uncached
        max_prompts, chunks = np.maximum(room, 1.0), np.maximum(1.0 / room, 1.0)
        numbers = [np.ones_like(max_prompts), np.sqrt(max_prompts), max_prompts]
        if in_step(deployment):
            numbers = [np.minimum(1.0 + others, max_prompts)]
        decode_only = lengths.decode(others / stages)
        with_prompts = [lengths.prompts(number / chunks) for number in numbers]
        if mixed:
            with_prompts = [prompts.combined_with(decode_only) for prompts in with_prompts]
        kinds = [lengths.decode(_on_a_stage(others, stages)), decode_only, *with_prompts]
        decode, without, *both = (
            {name: column.reshape(others.shape) for name, column in parts.items()}
            for parts in worker.parts_of_each(kinds)
        )
        shared, at = np.minimum(others, 1.0) * mixed, np.stack(numbers)
        added = {
            name: np.stack([np.maximum(one[name] - shared * without[name], 0.0) for one in both])
            for name in decode
        }
        prefill = _PrefillTime(at, np.asarray(sum(added.values())) / stages)
        iteration = np.asarray(sum(decode.values()))
        step = iteration / tokens_per_iteration(deployment.engine)
        decoding = iteration / stages
        parts = {name: _PrefillTime(at, seconds) for name, seconds in added.items()}
        hold = deployment.engine.hold_iterations
        times = (step, decoding, decoding * shared, prefill, max_prompts, chunks)
        return cls(*times, mixed, hold, decode, parts)

    def work(self, batch: Column) -> Column:
        """Seconds per prompt when `batch` prompts share an iteration."""
        return np.asarray(np.maximum(self.chunks * self.prefill.at(batch) / batch, 1e-9))

    def in_step(self, others: Column, lengths: _Lengths) -> tuple[Column, ...]:
        """Solve for requests that start and end together; returns the same as `at_random`.

        All prompts precede the next token, and wait for each other.
        """
        batch = np.minimum(1.0 + others, self.max_prompts)
        interfering = (1.0 + others - batch) / 2.0
        tpot = self.step + interfering * self.work(batch) / lengths.further
        first = self.chunks * self.prefill.at(batch) + interfering * self.work(batch)
        rate = (1.0 + others) / (first + lengths.further * tpot)
        return interfering, batch, batch, tpot, np.zeros_like(others), rate

    def at_random(self, others: Column, lengths: _Lengths) -> tuple[Column, ...]:
        """Solve for requests that start independently of each other.

        A prompt shares an iteration with those that arrived during the previous one (a Poisson
        process). Where these overflow one iteration of m prompts, they queue as in an M/G/m queue
        (Sakasegawa's approximation). More prompts arrive during long iterations, so a prompt's own
        iteration holds more of them than the mean iteration (`own_batch`).

        Returns:
            `interfering` and `batch` of `SCALARS`, the prompts in a prompt's own iteration, `tpot`,
            `waiting`, and requests/s, each (k, g).
        """
        further, full, varied = lengths.further, self.max_prompts, 1.0 + lengths.variation**2
        longest = self.chunks * (self.shared + self.prefill.at(full))
        power = np.sqrt(2.0 * (full + 1.0))
        batch, backlog = np.ones_like(others), np.zeros_like(others)
        for _ in range(ROUNDS):
            tpot = self.step + (others + backlog) * self.work(batch) / further
            rate = others / (further * tpot)
            in_prefill = rate * (self.shared + self.prefill.at(batch))
            in_decode = rate * self.decoding
            while_held = (1.0 + self.hold) * in_decode
            first_batch = while_held / np.maximum(-np.expm1(-while_held), 1e-12)
            batch = np.clip(in_prefill + np.exp(-in_prefill) * first_batch, 1.0, full)
            iteration = self.chunks * (self.shared + self.prefill.at(batch))
            busy = np.minimum(rate * longest / full, BUSIEST)
            queued = varied * longest / full * busy**power / (1.0 - busy) / 2.0
            decoded = np.minimum(rate * tpot * self.chunks / batch, 1.0) if self.mixed else 0.0
            prefilling = np.minimum(rate * iteration / batch, 1.0)
            decoding = (1.0 - prefilling) * -np.expm1(-others) * self.decoding
            own_batch = np.clip(1.0 + rate * (prefilling * iteration + decoding), batch, full)
            own_s = self.chunks * (self.shared + self.prefill.at(own_batch))
            arrived = rate * (own_s + queued)
            new_backlog = np.maximum((1.0 - decoded) * (arrived - in_decode), 0.0)
            if self.mixed:
                # Each iteration yields a token and processes no more prompts than it has room for.
                prefill_s = -np.expm1(-arrived - others) * further * self.prefill.at(full)
                new_backlog = np.minimum(new_backlog, prefill_s / self.work(batch) - others)
            backlog = backlog + DAMPING * (new_backlog - backlog)
        tpot = self.step + (others + backlog) * self.work(batch) / further
        rate = others / (further * tpot)
        # Times per token are means over requests, most of which write less than the mean.
        interfering = others + np.maximum(backlog, backlog * lengths.mean_over_median)
        tpot = self.step + interfering * self.work(batch) / further
        hold_s = -np.expm1(-others) * self.hold * self.decoding
        waiting = queued + (prefilling * varied * iteration + decoding) / 2.0 + hold_s
        return interfering, batch, own_batch, tpot, waiting, rate


def _colocated_grid(
    deployment: LlmDeployment,
    workers: Callable[..., WorkerTime],
    others: Column,
    lengths: _Lengths,
    token_budget: float,
) -> Matrix:
    """Grids of deployments whose workers both prefill and decode, (quantities, k, g).

    Args:
        deployment: one of k deployments that differ only in lengths.
        workers: returns the iteration times of its workers in a phase.
        others: (k, g) numbers of other sequences.
        lengths: request lengths of each deployment.
        token_budget: most tokens in an iteration.
    """
    rank = _RankTimes.of(deployment, workers(), others, lengths, token_budget)
    lockstep, stages = in_step(deployment), deployment.pool.parallelism.pipeline
    interfering, batch, own_batch, tpot, waiting, rank_rate = (
        rank.in_step(others, lengths) if lockstep else rank.at_random(others, lengths)
    )
    prefill = {
        name: rank.chunks * part.at(batch) / batch for name, part in rank.prefill_parts.items()
    }
    work, rate = rank.work(batch), _ranks(deployment) * rank_rate
    busy = np.minimum(rank_rate * work, BUSIEST)
    own_s = stages * rank.chunks * rank.prefill.at(own_batch)
    service = own_s + stages * rank.chunks * rank.shared
    before = 0.0 if lockstep else service + waiting
    in_flight = _in_flight(deployment, others, before, lengths.further * tpot)
    times = (interfering, batch, own_s, work, service, waiting)
    return _stacked((others, tpot, *times, rate, busy, in_flight), rank.decode_parts, prefill)


def _disaggregated_grid(
    deployment: LlmDeployment,
    workers: Callable[..., WorkerTime],
    others: Column,
    lengths: _Lengths,
    token_budget: float,
) -> Matrix:
    """Grids as of `_colocated_grid`, with separate workers for prefill, which hand over caches.

    Prefill workers bound the number of sequences that decode; further requests wait for them.
    """
    first, accepted = deployment.prefill, tokens_per_iteration(deployment.engine)
    assert first is not None
    worker, decoder = workers(phase="prefill"), workers()
    chunks = lengths.chunks(token_budget, 0.0)
    one_chunk = worker.parts(lengths.prompts(1.0 / chunks))
    prefill = {name: chunks * part[:, None] + 0.0 * others for name, part in one_chunk.items()}
    work = np.asarray(sum(prefill.values())) / first.parallelism.pipeline
    servers = first.workers * first.parallelism.attention_data

    def decoded(numbers: Column) -> tuple[dict[str, Column], Column, Column]:
        """Parts of an iteration, time per token, and utilisation of the prefill workers."""
        decoding = lengths.decode(_on_a_stage(numbers, deployment.pool.parallelism.pipeline))
        parts = {
            name: column.reshape(numbers.shape) for name, column in decoder.parts(decoding).items()
        }
        tpot = np.asarray(sum(parts.values())) / accepted
        return parts, tpot, _ranks(deployment) * numbers / (lengths.further * tpot) * work / servers

    decode, tpot, busy = decoded(others)
    if (busy > BUSIEST).any():
        rising = np.maximum.accumulate(busy, axis=1)
        highest = [np.interp(BUSIEST, *row) for row in zip(rising, others, strict=True)]
        others = _others(np.maximum(highest, 2.0 * FEWEST)[:, None])
        decode, tpot, busy = decoded(others)
    busy = np.minimum(busy, BUSIEST)
    rate = busy * servers / work
    own_s = work * first.parallelism.pipeline
    tokens = lengths.prompt.ravel().tolist()
    cache = [deployment.model.cache_bytes(int(length)) for length in tokens]
    handover = np.array(cache, dtype=np.float64)[:, None] / worker.sheet.link
    service = own_s + handover + tpot
    waiting = lengths.waiting(busy, work)
    in_flight = _in_flight(deployment, others, service + waiting, lengths.further * tpot)
    times = (others, np.ones_like(others), own_s, work, service, waiting)
    return _stacked((others, tpot, *times, rate, busy, in_flight), decode, prefill)


def _in_flight(
    deployment: LlmDeployment, others: Column, before: Column | float, answer: Column
) -> Column:
    """Requests in flight: one, the others that decode, and those still before their first token.

    Args:
        deployment: the deployment.
        others: other sequences that decode on a rank.
        before: seconds to the first token that requests do not spend in step with each other.
        answer: seconds from the first to the last token.
    """
    return np.asarray(1.0 + _ranks(deployment) * others * (1.0 + before / answer))


def _stacked(
    scalars: Sequence[Column], decode: Mapping[str, Column], prefill: Mapping[str, Column]
) -> Matrix:
    """All `QUANTITIES`: the scalars and the parts, (quantities, k, g)."""
    return np.stack([*scalars, *(parts[part] for parts in (decode, prefill) for part in PARTS)])


def _on_a_stage(others: Column, stages: int) -> Column:
    """Sequences that a pipeline stage decodes at a time: its share of all, at least one."""
    return np.maximum((1.0 + others) / stages, 1.0)


def _ranks(deployment: LlmDeployment) -> int:
    return deployment.pool.workers * deployment.pool.parallelism.attention_data
