"""Times of a data-parallel rank under a load of known lengths, by the sequences that decode."""

from dataclasses import dataclass
from typing import Final, Literal, Self

import numpy as np

from forerun.data.columns import Column, Matrix
from forerun.data.language_models.deployment import RequestLoad
from forerun.features.llm_serving.iteration import Iterations
from forerun.models.llm_serving.scheduler import Scheduler
from forerun.models.llm_serving.worker import Worker

LimitedBy = Literal["sequences", "cache", "prompts"]
"""Sequences of an iteration, room in the cache, or tokens of prompts in an iteration."""

_NODES: Final = 5
_GRID: Final = 32


@dataclass(frozen=True, slots=True)
class RankTimes:
    """Times for 0 to `limit` sequences that decode; arrays have shape (limit + 1,).

    Attributes:
        limit: most sequences that decode at a time: for more there is no room in the cache on
            average, or not enough tokens of prompts in an iteration to replace those that end.
        limited_by: what sets this limit.
        steps: iterations of decoding that a request needs, mean.
        per_step: mean of their reciprocal.
        context: tokens in the cache of a sequence that decodes, mean.
        decode_s: time of an iteration that decodes only, seconds; 0 for no sequence.
        prompt_s: time that one prompt adds to iterations, mean over prompts, seconds.
        prompt_s2: mean of its square.
        iterations: iterations over which a prompt is divided, mean over prompts.
    """

    limit: int
    limited_by: LimitedBy
    steps: float
    per_step: float
    context: float
    decode_s: Column
    prompt_s: Column
    prompt_s2: Column
    iterations: Column

    @classmethod
    def of(cls, load: RequestLoad, scheduler: Scheduler, worker: Worker) -> Self:
        """Times of one rank; prompts are spread over five lengths where they vary."""
        context, steps = _context(load), _steps(load, scheduler)
        limit, limited_by = _limit(load, scheduler, worker)
        kept = np.concatenate(([0.0], np.unique(np.rint(np.geomspace(1, limit, _GRID)))))
        nodes, weights = _lengths(load.input_tokens, load.input_variation)
        decode, extra, count = _measured(kept, nodes, load, scheduler, worker)
        outputs, shares = _lengths(load.output_tokens, load.output_variation)
        per_step = shares @ (1 / np.maximum(1, (outputs - 1) / scheduler.tokens_per_step))
        every = np.arange(limit + 1.0)
        return cls(
            limit,
            limited_by,
            steps,
            float(per_step),
            context,
            *(
                np.interp(every, kept, values)
                for values in (decode, extra @ weights, extra**2 @ weights, count @ weights)
            ),
        )

    def sustained(self) -> Column:
        """Arrivals a second that keep 1 to `limit` sequences decoding, shape (limit,).

        A second holds so many iterations as leave room for the prompts that arrive in it.
        """
        many = np.arange(1.0, self.limit + 1)
        return many / (self.steps * self.decode_s[1:] + many * self.prompt_s[1:])

    def capacity(self) -> float:
        """Most arrivals a second that can be served for ever."""
        alone = 1 / self.prompt_s[0] if not self.steps else 0.0
        return float(max(alone, self.sustained().max()))


def _steps(load: RequestLoad, scheduler: Scheduler) -> float:
    return max(0.0, load.output_tokens - 1) / scheduler.tokens_per_step


def _context(load: RequestLoad) -> float:
    """Mean tokens of a sequence at a random moment of its decoding."""
    return load.input_tokens + load.output_tokens * (1 + load.output_variation**2) / 2


def _limit(load: RequestLoad, scheduler: Scheduler, worker: Worker) -> tuple[int, LimitedBy]:
    """Most sequences that decode, and why there cannot be more."""
    limits: list[tuple[float, LimitedBy]] = [
        (scheduler.max_sequences, "sequences"),
        (worker.capacity_tokens / (_context(load) + scheduler.block_tokens / 2), "cache"),
    ]
    steps = _steps(load, scheduler)
    if scheduler.chunked_prefill and steps:
        uncached = max(1.0, load.input_tokens * (1 - load.cached_share))
        limits.append((steps * scheduler.max_batched_tokens / uncached, "prompts"))
    least, reason = min(limits)
    return max(1, int(least)), reason


def _lengths(mean: float, variation: float) -> tuple[Column, Column]:
    """Lengths of prompts and their weights, which give log-normal moments."""
    if not variation:
        return np.array([mean]), np.ones(1)
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    spread = np.sqrt(np.log1p(variation**2))
    return np.maximum(1, mean * np.exp(spread * nodes - spread**2 / 2)), weights / weights.sum()


def _measured(
    kept: Column,
    lengths: Column,
    load: RequestLoad,
    scheduler: Scheduler,
    worker: Worker,
) -> tuple[Column, Matrix, Matrix]:
    """Times of decoding, shape (n,), and times that prompts add and their iterations, (n, lengths).

    A prompt in more than one iteration has a first, a last, and full ones between, whose time
    rises evenly. As many prompts share the last one as sequences end in an iteration.
    """
    together = scheduler.chunked_prefill
    many, whole = np.meshgrid(kept, lengths, indexing="ij")
    before = np.minimum(load.cached_share * whole, whole - 1)
    size = np.maximum(1.0, scheduler.max_batched_tokens - many)
    full = np.maximum(0, np.ceil((whole - before) / size) - 1) if together else 0.0 * whole
    rest = whole - before - full * size
    alike = np.clip(many / max(_steps(load, scheduler), 1e-9), 1, np.maximum(1, size / rest))
    decoding = many if together else np.zeros_like(many)
    one = np.ones_like(many)
    between = before + np.maximum(0, full - 1) * size
    parts = ((size, before, one), (size, between, one), (rest, whole - rest, alike))
    rows = [
        tuple(x.ravel() for x in (n * c, n * (c * k + c * (c + 1) / 2), n, decoding))
        for c, k, n in parts
    ]
    rows.append((np.zeros(len(kept)),) * 3 + (kept,))
    tokens, pairs, prompts, sequences = (np.concatenate(x) for x in zip(*rows, strict=True))
    context = sequences * _context(load)
    seconds = worker.time.seconds(Iterations(tokens, pairs, prompts, sequences, context))
    first, last, end = (s.reshape(many.shape) for s in np.split(seconds[: 3 * many.size], 3))
    decode = np.where(kept > 0, seconds[3 * many.size :], 0.0)
    pause = decode[:, None] if together else 0.0
    return decode, full * ((first + last) / 2 - pause) + (end - pause) / alike, full + 1
