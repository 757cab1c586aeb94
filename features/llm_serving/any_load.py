"""Deployments with any number or rate of requests, in closed form, on a grid.

A data-parallel rank decodes 1 + x sequences where a request sees x others. All that follows from x
(time per token, waiting, rate) is computed on a grid of x.

Prompts delay decoding: while a request writes its tokens, about x other prompts are processed
(Little's law). Prompts wait for each other as in an M/G/1 queue.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Self

import numpy as np

from forerun.data.columns import Column, Matrix
from forerun.data.device import Device
from forerun.data.language_models.deployment import LlmDeployment
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
"""Largest utilisation of workers for prompts of their own that the queue's formula is used for."""
SCALARS: Final = ("others", "tpot", "work", "service", "waiting", "rate", "busy", "in_flight")
"""Quantities of a grid. `others`: other sequences that decode; `tpot`: time for each token after
the first; `work`: time that a prompt occupies the rank; `service`: time to the first token without
queueing; `waiting`: waiting of prompts for each other; `rate`: requests a second of all ranks;
`busy`: share of the time spent on prompts; `in_flight`: requests in flight on all ranks."""
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
        fits: whether weights and one sequence fit the memory.
        iterations: number of iterations that a prompt is divided over.
    """

    grid: Matrix
    answer_tokens: float
    prompt_ranks: int
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
            deployments: k deployments; their `concurrency` and `requests_per_s` are not used.
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
        grid = make(first, workers, _others(most), lengths, lengths.chunks(batched, 0.0))
        prompts = first.prefill or first.pool
        prompt_ranks = prompts.workers * prompts.parallelism.attention_data
        return [
            cls(np.ascontiguousarray(grid[:, place]), after, prompt_ranks, limit.fits, chunks)
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
    """

    given: Column
    new: Column
    answer: Column
    after: Column
    variation: Column

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

    def prompt(self, chunks: Column, points: int) -> Iterations:
        """The mean iteration of one prompt, at each of some points, one after the other."""
        cached = np.maximum(self.given - self.new, 0.0)
        pairs = self.new * cached + self.new * (self.new + 1.0) / 2.0
        none = np.zeros(len(self.new) * points)
        tokens, pairs, prompts = (
            np.repeat((own / chunks).ravel(), points)
            for own in (self.new, pairs, np.ones_like(self.new))
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


def _together(
    deployment: LlmDeployment,
    workers: Callable[..., WorkerTime],
    others: Column,
    lengths: _Lengths,
    chunks: Column,
) -> Matrix:
    """Grids of deployments with prompts and decoding on the same workers, (quantities, k, g).

    Args:
        deployment: one of k deployments that differ in lengths alone.
        workers: gives the times of iterations of its workers in a phase.
        others: (k, g) numbers of other sequences.
        lengths: lengths of the requests of each.
        chunks: (k, 1) iterations that a prompt is divided over.
    """
    stages, engine = deployment.pool.parallelism.pipeline, deployment.engine
    worker = workers()
    decoding = lengths.decode(_on_a_stage(others, stages))
    prompt = lengths.prompt(chunks, others.shape[1])
    others_alone = lengths.decode(others / stages)
    mixed = prompt.combined_with(others_alone) if mixes(engine) else prompt
    decode, both, without = (
        {name: column.reshape(others.shape) for name, column in own.items()}
        for own in worker.parts_of_each([decoding, mixed, others_alone])
    )
    shared = np.minimum(others, 1.0) if mixes(engine) else 0.0
    prefill = {
        name: chunks * np.maximum(own - shared * without[name], 0.0) for name, own in both.items()
    }
    accepted = tokens_per_iteration(engine)
    step = sum(decode.values()) / accepted
    work = np.maximum(sum(prefill.values()), 1e-9)
    tpot = step + others * work / stages / lengths.after
    rate_of_rank = others / (lengths.after * tpot)
    busy = np.minimum(rate_of_rank * work / stages, BUSIEST)
    waiting = lengths.waiting(busy, work / stages)
    # The current iteration ends before a prompt begins, and mixed iterations decode as well.
    service = work + step * accepted * (0.5 * np.minimum(others, 1.0) + chunks * shared)
    rate = _ranks(deployment) * rate_of_rank
    found = (others, tpot, work / stages, service, waiting, rate, busy)
    return _grid(deployment, found, decode, prefill, lengths)


def _apart(
    deployment: LlmDeployment,
    workers: Callable[..., WorkerTime],
    others: Column,
    lengths: _Lengths,
    chunks: Column,
) -> Matrix:
    """As `_together`, with prompts and decoding on workers of their own, which hand over caches.

    No more decode than workers for prompts can begin: the others wait for these.
    """
    first, accepted = deployment.prefill, tokens_per_iteration(deployment.engine)
    assert first is not None
    worker, decoder = workers(phase="prefill"), workers()
    alone = worker.parts(lengths.prompt(chunks, 1))
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
    held = [deployment.model.cache_bytes(int(given)) for given in lengths.given.ravel().tolist()]
    handed = np.array(held, dtype=np.float64)[:, None] / worker.sheet.link
    service = work * first.parallelism.pipeline + handed + tpot
    found = (others, tpot, work, service, lengths.waiting(busy, work), rate, busy)
    return _grid(deployment, found, decode, prefill, lengths)


def _grid(
    deployment: LlmDeployment,
    found: Sequence[Column],
    decode: Mapping[str, Column],
    prefill: Mapping[str, Column],
    lengths: _Lengths,
) -> Matrix:
    """All `QUANTITIES` from those of `SCALARS` but the last and the parts, (quantities, k, g)."""
    others, tpot, _, service, waiting, *_ = found
    # The request itself, and for each that decodes on a rank those before their first token.
    decoding = others * (1.0 + (service + waiting) / (lengths.after * tpot))
    in_flight = 1.0 + _ranks(deployment) * decoding
    parts = (own[part] for own in (decode, prefill) for part in PARTS)
    return np.stack([*found, in_flight, *parts])


def _on_a_stage(others: Column, stages: int) -> Column:
    """Sequences that a stage decodes at a time: a part of all, and one where there are fewer."""
    return np.maximum((1.0 + others) / stages, 1.0)


def _ranks(deployment: LlmDeployment) -> int:
    return deployment.pool.workers * deployment.pool.parallelism.attention_data
