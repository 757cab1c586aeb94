"""Deployments with any number or rate of requests, in closed form, on a grid.

A data-parallel rank decodes 1 + x sequences where a request sees x others. All that follows from x
(time per token, waiting, rate) is computed on a grid of x.

Prompts delay decoding. By Little's law, as many others arrive as decode while a request writes its
tokens; of those that arrived during its own prompt, more are processed then than are left over when
it ends, since long iterations follow each other. Prompts that wait share an iteration: all that
arrived during the last one, up to the tokens of an iteration, beyond which they queue.

Where engines process all prompts before they decode, the requests of a closed loop with answers of
one length start and end together (`in_step`): their prompts wait for each other, and delay fewer
tokens. Where iterations mix both, measured closed loops do not stay together.
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
"""Deployment, device and phase -> times of iterations of its workers, as `WorkerTime.of`."""
POINTS: Final = 16
FEWEST: Final = 0.02
BUSIEST: Final = 0.98
"""Largest utilisation of workers by prompts that the queue's formula is used for."""
FIRST_WAVE: Final = 0.2
"""Share of the requests of a closed loop that wait as if all started together. Benchmarks of ten
requests for each in flight start a tenth so; first tokens of the runs of vLLM and TensorRT-LLM in
`aiconfigurator_serving`, with nothing fitted, are least off with .2 to .25."""
ROUNDS: Final = 8
"""Rounds in which the rate and the prompts of an iteration are solved for."""
DAMPING: Final = 0.6
"""Part of its change that the number of prompts at hand keeps in a round."""
SCALARS: Final = (
    *("others", "tpot", "met", "batch", "own", "work", "service", "waiting", "rate", "busy"),
    "in_flight",
)
"""Quantities of a grid. `others`: other sequences that decode; `tpot`: time for each token after
the first; `met`: prompts of others that are processed while a request writes these; `batch`:
prompts that share an iteration; `own`: time that the prompts of a request's own iteration add to
it, times the iterations that one is divided over; `work`: time that each occupies the rank;
`service`: time to the first token without queueing; `waiting`: waiting of prompts for each other;
`rate`: requests a second of all ranks; `busy`: share of the time spent on prompts; `in_flight`:
requests in flight on all ranks."""
QUANTITIES: Final = (
    *SCALARS,
    *(f"decode {part}" for part in PARTS),
    *(f"prefill {part}" for part in PARTS),
)
"""Rows of a grid, with the parts of an iteration of decoding and further ones for a prompt."""


@dataclass(frozen=True, slots=True)
class AnyLoad:
    """A deployment on devices of one kind with any number or rate of requests.

    Attributes:
        grid: (quantities, g) `QUANTITIES` of a rank at g numbers of other sequences, seconds; those
            of which positions are sought do not fall.
        answer_tokens: tokens of an answer after the first, at least one.
        prompt_ranks: ranks of all workers that process prompts.
        together: share of the requests of a closed loop that start together.
        fits: whether weights and one sequence fit the memory.
        iterations: number of iterations that a prompt is divided over.
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
        """Each of k deployments that differ in the lengths of their requests alone.

        Args:
            deployments: k deployments, all or none `in_step`; nothing else of their `concurrency`
                and `requests_per_s` is used.
            device: each of the devices.
            worker_of: gives the times of iterations of a deployment's workers.

        Raises:
            UnknownBandwidth, UnknownPrecision: the device's sheet lacks a figure.
        """
        first = deployments[0]
        limits = [Limits.of(one, device, first.pool.parallelism) for one in deployments]
        most = np.array([max(own.sequences - 1.0, FEWEST) for own in limits])[:, None]
        lengths = _Lengths.of(deployments)
        batched = limits[0].tokens
        make = _together if first.prefill is None else _apart
        workers = partial(worker_of, first, device)
        grid = make(first, workers, _others(most), lengths, batched)
        prompts = first.prefill or first.pool
        ranks = prompts.workers * prompts.parallelism.attention_data
        share = 1.0 if in_step(first) else FIRST_WAVE
        return [
            cls(np.ascontiguousarray(grid[:, place]), after, ranks, share, limit.fits, chunks)
            for place, (after, limit, chunks) in enumerate(
                zip(
                    lengths.after.ravel().tolist(),
                    limits,
                    lengths.chunks(batched, most).ravel().tolist(),
                    strict=True,
                )
            )
        ]


class _Lengths(NamedTuple):
    """Lengths of the requests of k deployments, each (k, 1), tokens.

    Attributes:
        given: mean tokens of a prompt.
        new: those that are not in the prefix cache, at least one.
        answer: mean tokens of an answer.
        after: those after the first, of which a request has at least one here.
        variation: standard deviation of the lengths of prompts over their mean.
        shorter: mean over median length of an answer, were it log-normal.
    """

    given: Column
    new: Column
    answer: Column
    after: Column
    variation: Column
    shorter: Column

    @classmethod
    def of(cls, deployments: Sequence[LlmDeployment]) -> Self:
        """Those of deployments."""
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

    def chunks(self, tokens: float, decoding: Column | float) -> Column:
        """Iterations that a prompt is divided over while so many sequences decode."""
        return np.asarray(np.ceil(self.new / np.maximum(tokens - decoding, tokens / 4.0)))

    def decode(self, sequences: Column) -> Iterations:
        """Iterations that decode so many sequences, (k, g), one after the other."""
        none = np.zeros(sequences.size)
        context = self.given + self.answer / 2.0
        return Iterations(none, none, none, sequences.ravel(), (sequences * context).ravel())

    def prompts(self, number: Column) -> Iterations:
        """Iterations of so many prompts, (k, g), or parts of one, one after the other."""
        cached = np.maximum(self.given - self.new, 0.0)
        pairs = self.new * cached + self.new * (self.new + 1.0) / 2.0
        none = np.zeros(number.size)
        tokens, pairs, prompts = (
            (own * number).ravel() for own in (self.new, pairs, np.ones_like(self.new))
        )
        return Iterations(tokens, pairs, prompts, none, none)

    def waiting(self, busy: Column, work: Column) -> Column:
        """Mean waiting in an M/G/1 queue, whose service varies as the lengths of prompts do."""
        return np.asarray(busy / (1.0 - busy) * work * (1.0 + self.variation**2) / 2.0)


def _others(most: Column) -> Column:
    """Numbers of other sequences of k grids: none, and a geometric series; shape (k, g)."""
    rising = FEWEST * (most / FEWEST) ** _EXPONENTS
    return np.concatenate([np.zeros_like(most), rising], axis=1)


_EXPONENTS: Final = np.linspace(0.0, 1.0, POINTS - 1)


class _Added(NamedTuple):
    """Seconds that prompts add to an iteration.

    Attributes:
        numbers: (p, k, g) numbers of prompts, of which an iteration holds one at least: one alone,
            or one, the geometric mean, and the most that there is room for.
        seconds: (p, k, g) what each adds.
    """

    numbers: Matrix
    seconds: Matrix

    def of(self, batch: Column) -> Column:
        """With so many prompts, (k, g), linear between the numbers."""
        if len(self.numbers) == 1:
            return np.asarray(self.seconds[0])
        one, some, full = self.seconds
        _, few, most = self.numbers
        with np.errstate(divide="ignore", invalid="ignore"):
            low = one + (some - one) * (batch - 1.0) / (few - 1.0)
            high = some + (full - some) * (batch - few) / (most - few)
        return np.asarray(np.where(batch > few, high, np.where(batch > 1.0, low, one)))


class _Rank(NamedTuple):
    """Iterations of a stage of a rank that decodes and takes prompts, each (k, g).

    Attributes:
        step: time per token of decoding alone, of all stages, seconds.
        decoding: seconds of an iteration without prompts.
        shared: seconds of decoding in an iteration with prompts.
        added: what prompts add.
        most: prompts that an iteration has room for, at least one.
        chunks: iterations that a prompt is divided over, at least one. They are no whole number:
            other prompts share the last one.
        mixed: whether iterations with prompts decode.
        held: iterations that a prompt waits for by setting.
        decode: part -> seconds of an iteration without prompts, of all stages.
        prompts: part -> what prompts add, of all stages.
    """

    step: Column
    decoding: Column
    shared: Column
    added: _Added
    most: Column
    chunks: Column
    mixed: bool
    held: float
    decode: Mapping[str, Column]
    prompts: Mapping[str, _Added]

    @classmethod
    def of(
        cls,
        deployment: LlmDeployment,
        worker: WorkerTime,
        others: Column,
        lengths: _Lengths,
        limit: float,
    ) -> Self:
        """The iterations of a worker of a deployment, of at most so many tokens."""
        stages, mixed = deployment.pool.parallelism.pipeline, mixes(deployment.engine)
        left = limit - others * mixed
        room = np.maximum(left, limit / 4.0) / lengths.new
        most, chunks = np.maximum(room, 1.0), np.maximum(1.0 / room, 1.0)
        numbers = [np.ones_like(most), np.sqrt(most), most]
        if in_step(deployment):
            numbers = [np.minimum(1.0 + others, most)]
        alone = lengths.decode(others / stages)
        with_prompts = [lengths.prompts(own / chunks) for own in numbers]
        if mixed:
            with_prompts = [own.combined_with(alone) for own in with_prompts]
        kinds = [lengths.decode(_on_a_stage(others, stages)), alone, *with_prompts]
        decode, without, *both = (
            {name: column.reshape(others.shape) for name, column in own.items()}
            for own in worker.parts_of_each(kinds)
        )
        shared, at = np.minimum(others, 1.0) * mixed, np.stack(numbers)
        added = {
            name: np.stack([np.maximum(own[name] - shared * without[name], 0.0) for own in both])
            for name in decode
        }
        all_added = _Added(at, np.asarray(sum(added.values())) / stages)
        iteration = np.asarray(sum(decode.values()))
        step = iteration / tokens_per_iteration(deployment.engine)
        decoding, parts = iteration / stages, {name: _Added(at, own) for name, own in added.items()}
        held = deployment.engine.hold_iterations
        return cls(
            step, decoding, decoding * shared, all_added, most, chunks, mixed, held, decode, parts
        )  # fmt: skip

    def work(self, batch: Column) -> Column:
        """Seconds of each of so many prompts that share an iteration."""
        return np.asarray(np.maximum(self.chunks * self.added.of(batch) / batch, 1e-9))

    def in_step(self, others: Column, lengths: _Lengths) -> tuple[Column, ...]:
        """Requests that start and end together, as `at_random`.

        All prompts come before the next token, and wait for each other.
        """
        batch = np.minimum(1.0 + others, self.most)
        met = (1.0 + others - batch) / 2.0
        tpot = self.step + met * self.work(batch) / lengths.after
        first = self.chunks * self.added.of(batch) + met * self.work(batch)
        rate = (1.0 + others) / (first + lengths.after * tpot)
        return met, batch, batch, tpot, np.zeros_like(others), rate

    def at_random(self, others: Column, lengths: _Lengths) -> tuple[Column, ...]:
        """Requests that start independently of each other.

        A prompt is processed with those that arrived during the last iteration (a Poisson process),
        and queues where these fill more than one, as in an M/G/m queue of m prompts in an iteration
        (Sakasegawa's approximation). More arrive during long iterations, so the iteration that a
        prompt is in holds more of them than the mean iteration (`with_own`).

        Returns:
            `met` and `batch` of `SCALARS`, prompts of the iteration that a prompt is in, `tpot`,
            `waiting`, and requests a second, each (k, g).
        """
        after, most, varied = lengths.after, self.most, 1.0 + lengths.variation**2
        longest = self.chunks * (self.shared + self.added.of(most))
        power = np.sqrt(2.0 * (most + 1.0))
        batch, left = np.ones_like(others), np.zeros_like(others)
        for _ in range(ROUNDS):
            tpot = self.step + (others + left) * self.work(batch) / after
            rate = others / (after * tpot)
            arrived = rate * (self.shared + self.added.of(batch))
            meanwhile = rate * self.decoding
            together = (1.0 + self.held) * meanwhile
            alone = together / np.maximum(-np.expm1(-together), 1e-12)
            batch = np.clip(arrived + np.exp(-arrived) * alone, 1.0, most)
            iteration = self.chunks * (self.shared + self.added.of(batch))
            busy = np.minimum(rate * longest / most, BUSIEST)
            queued = varied * longest / most * busy**power / (1.0 - busy) / 2.0
            decoded = np.minimum(rate * tpot * self.chunks / batch, 1.0) if self.mixed else 0.0
            taken = np.minimum(rate * iteration / batch, 1.0)
            decoding = (1.0 - taken) * -np.expm1(-others) * self.decoding
            with_own = np.clip(1.0 + rate * (taken * iteration + decoding), batch, most)
            own = self.chunks * (self.shared + self.added.of(with_own))
            before = rate * (own + queued)
            found = np.maximum((1.0 - decoded) * (before - meanwhile), 0.0)
            if self.mixed:
                # Each iteration writes a token, and processes no more than one has room for.
                most_met = -np.expm1(-before - others) * after * self.added.of(most)
                found = np.minimum(found, most_met / self.work(batch) - others)
            left = left + DAMPING * (found - left)
        tpot = self.step + (others + left) * self.work(batch) / after
        rate = others / (after * tpot)
        # Times per token are means over requests, most of which write less than the mean.
        met = others + np.maximum(left, left * lengths.shorter)
        tpot = self.step + met * self.work(batch) / after
        held = -np.expm1(-others) * self.held * self.decoding
        waiting = queued + (taken * varied * iteration + decoding) / 2.0 + held
        return met, batch, with_own, tpot, waiting, rate


def _together(
    deployment: LlmDeployment,
    workers: Callable[..., WorkerTime],
    others: Column,
    lengths: _Lengths,
    limit: float,
) -> Matrix:
    """Grids of deployments with prompts and decoding on the same workers, (quantities, k, g).

    Args:
        deployment: one of k deployments that differ in lengths alone.
        workers: gives the times of iterations of its workers in a phase.
        others: (k, g) numbers of other sequences.
        lengths: lengths of the requests of each.
        limit: most tokens of an iteration.
    """
    rank = _Rank.of(deployment, workers(), others, lengths, limit)
    steady, stages = in_step(deployment), deployment.pool.parallelism.pipeline
    met, batch, with_own, tpot, waiting, rate_of_rank = (
        rank.in_step(others, lengths) if steady else rank.at_random(others, lengths)
    )
    prefill = {name: rank.chunks * own.of(batch) / batch for name, own in rank.prompts.items()}
    work, rate = rank.work(batch), _ranks(deployment) * rate_of_rank
    busy = np.minimum(rate_of_rank * work, BUSIEST)
    own = stages * rank.chunks * rank.added.of(with_own)
    service = own + stages * rank.chunks * rank.shared
    before = 0.0 if steady else service + waiting
    in_flight = _in_flight(deployment, others, before, lengths.after * tpot)
    found = (others, tpot, met, batch, own, work, service, waiting, rate, busy, in_flight)
    return _grid(found, rank.decode, prefill)


def _apart(
    deployment: LlmDeployment,
    workers: Callable[..., WorkerTime],
    others: Column,
    lengths: _Lengths,
    limit: float,
) -> Matrix:
    """As `_together`, with prompts and decoding on workers of their own, which hand over caches.

    No more decode than workers for prompts can begin: the others wait for these.
    """
    first, accepted = deployment.prefill, tokens_per_iteration(deployment.engine)
    assert first is not None
    worker, decoder, chunks = workers(phase="prefill"), workers(), lengths.chunks(limit, 0.0)
    alone = worker.parts(lengths.prompts(1.0 / chunks))
    prefill = {name: chunks * column[:, None] + 0.0 * others for name, column in alone.items()}
    work = np.asarray(sum(prefill.values())) / first.parallelism.pipeline
    servers = first.workers * first.parallelism.attention_data

    def decoded(numbers: Column) -> tuple[dict[str, Column], Column, Column]:
        """Parts of an iteration, time per token and share of time of workers for prompts."""
        decoding = lengths.decode(_on_a_stage(numbers, deployment.pool.parallelism.pipeline))
        parts = {
            name: column.reshape(numbers.shape) for name, column in decoder.parts(decoding).items()
        }
        tpot = np.asarray(sum(parts.values())) / accepted
        return parts, tpot, _ranks(deployment) * numbers / (lengths.after * tpot) * work / servers

    decode, tpot, busy = decoded(others)
    if (busy > BUSIEST).any():
        rising = np.maximum.accumulate(busy, axis=1)
        most = [np.interp(BUSIEST, *own) for own in zip(rising, others, strict=True)]
        others = _others(np.maximum(most, 2.0 * FEWEST)[:, None])
        decode, tpot, busy = decoded(others)
    busy = np.minimum(busy, BUSIEST)
    rate = busy * servers / work
    own = work * first.parallelism.pipeline
    held = [deployment.model.cache_bytes(int(given)) for given in lengths.given.ravel().tolist()]
    handed = np.array(held, dtype=np.float64)[:, None] / worker.sheet.link
    service = own + handed + tpot
    waiting = lengths.waiting(busy, work)
    in_flight = _in_flight(deployment, others, service + waiting, lengths.after * tpot)
    found = (others, tpot, others, np.ones_like(others), own, work, service, waiting, rate, busy)
    return _grid((*found, in_flight), decode, prefill)


def _in_flight(
    deployment: LlmDeployment, others: Column, before: Column | float, answer: Column
) -> Column:
    """Requests in flight: one, and for each that decodes on a rank those before their first token.

    Args:
        deployment: the deployment.
        others: other sequences that decode on a rank.
        before: seconds before a first token that requests do not spend together.
        answer: seconds of all further tokens.
    """
    return np.asarray(1.0 + _ranks(deployment) * others * (1.0 + before / answer))


def _grid(
    found: Sequence[Column], decode: Mapping[str, Column], prefill: Mapping[str, Column]
) -> Matrix:
    """All `QUANTITIES`: those of `SCALARS` and the parts, (quantities, k, g)."""
    return np.stack([*found, *(own[part] for own in (decode, prefill) for part in PARTS)])


def _on_a_stage(others: Column, stages: int) -> Column:
    """Sequences that a stage decodes at a time: a part of all, and one where there are fewer."""
    return np.maximum((1.0 + others) / stages, 1.0)


def _ranks(deployment: LlmDeployment) -> int:
    return deployment.pool.workers * deployment.pool.parallelism.attention_data
