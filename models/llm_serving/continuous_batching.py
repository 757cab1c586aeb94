"""Discrete-event simulation of continuous batching on one data-parallel rank.

Between events (a request arrives, starts or ends), every iteration decodes the same sequences. Such
iterations are advanced in one step, by summing their times as arithmetic series. A `Scheduler`
holds the limits by which an engine forms iterations.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import ceil, inf, nan
from typing import Self

import numpy as np

from forerun.data.columns import Column
from forerun.data.language_models.deployment import Engine
from forerun.features.deadline import check
from forerun.features.llm_serving.engine_settings import mixes, reserves, tokens_per_iteration
from forerun.models.llm_serving.iteration_table import IterationTable
from forerun.models.llm_serving.worker import Worker


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Limits of one data-parallel rank.

    Attributes:
        max_batched_tokens: most tokens in an iteration.
        max_sequences: most sequences in an iteration.
        block_tokens: tokens in a KV-cache block.
        blocks: KV-cache blocks of the rank.
        chunked_prefill: whether prompts are split over iterations that also decode, with decode
            first; otherwise whole prompts go first, in iterations of their own.
        tokens_per_step: mean tokens that a sequence gains per decode iteration.
        reserves: whether a request starts only once there are blocks for its whole answer.
        held: decode iterations that the engine's settings hold a prompt back.
    """

    max_batched_tokens: int
    max_sequences: int
    block_tokens: int
    blocks: int
    chunked_prefill: bool = True
    tokens_per_step: float = 1.0
    reserves: bool = False
    held: float = 0.0

    @classmethod
    def of(cls, engine: Engine, worker: Worker) -> Self:
        """Limits of an engine on one rank of a worker."""
        tokens = engine.max_batched_tokens or worker.max_batched_tokens
        return cls(
            tokens,
            min(engine.max_sequences or worker.max_sequences, tokens),
            engine.block_tokens,
            int(worker.capacity_tokens // engine.block_tokens),
            mixes(engine),
            tokens_per_iteration(engine),
            reserves(engine),
            engine.hold_iterations,
        )

    @property
    def steps_per_block(self) -> int:
        """Decode iterations after which a sequence needs another block, rounded."""
        return max(1, round(self.block_tokens / self.tokens_per_step))

    def blocks_for(self, tokens: float) -> int:
        """Blocks that hold this many tokens of one sequence."""
        return -int(-tokens // self.block_tokens)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Mean and percentiles of the known values; NaN if there are none."""

    mean: float
    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, values: Column) -> "Statistics":
        """Statistics of the values, shape (n,), that are not NaN."""
        known = values[~np.isnan(values)]
        if not len(known):
            return cls(*[float("nan")] * 4)
        return cls(float(known.mean()), *map(float, np.percentile(known, (50, 90, 99))))


@dataclass(slots=True)
class Request:
    """One request and its progress.

    Attributes:
        arrival_s: time of arrival at the rank, seconds.
        input_tokens: length of the prompt.
        output_tokens: tokens to generate.
        cached_tokens: prompt tokens that need no prefill; all of them if another worker has
            processed the prompt and generated the first token.
        written: tokens generated so far.
        first_token_s: time of the first token; NaN before.
        finished_s: time of the last token; NaN before, and if the request was refused.
        preemptions: how often the request was preempted, which discards its keys and values.
    """

    arrival_s: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    written: int = 0
    first_token_s: float = nan
    finished_s: float = nan
    preemptions: int = 0
    _decoding_since: int = -1
    """Step of the rank at which decode began; -1 while it does not decode."""
    _written_before: int = 0
    """Tokens generated before decode began."""
    _phase: int = 0
    """Step, modulo steps per block, at which it needs another block."""
    _blocks: int = 0
    """Blocks held when decode began, or during prefill."""


@dataclass
class Rank:
    """State of one data-parallel rank between two iterations.

    Attributes:
        scheduler: limits of an iteration.
        table: iteration times.
        now_s: end of the last iteration, seconds.
        busy_s: time of all iterations so far, seconds.
        sequence_s: sum over iterations of their time times the sequences that decode, seconds.
        most_blocks: most blocks in use at the end of an iteration.
        tokens: prompt tokens processed and tokens generated so far.
    """

    scheduler: Scheduler
    table: IterationTable
    now_s: float = 0.0
    busy_s: float = 0.0
    sequence_s: float = 0.0
    most_blocks: int = 0
    tokens: list[int] = field(default_factory=lambda: [0, 0])
    _queue: deque[Request] = field(default_factory=deque)
    _chunk: tuple[Request, int] | None = None
    _ends: list[tuple[int, int, Request]] = field(default_factory=list)
    _admitted: list[Request] = field(default_factory=list)
    _sequences: int = 0
    _context: float = 0.0
    _step: int = 0
    _order: int = 0
    _promised: int = 0
    _step_s: float = 0.0
    _free: int = field(init=False)
    _phases: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._free = self.scheduler.blocks
        self._phases = [0] * self.scheduler.steps_per_block

    @property
    def in_flight(self) -> int:
        """Requests submitted but not finished."""
        return self._sequences + len(self._queue) + (self._chunk is not None)

    def submit(self, request: Request) -> None:
        """Add a request, which must not arrive before those already submitted.

        A request that the rank can never hold is refused: its times stay NaN.
        """
        if self._whole(request) <= self.scheduler.blocks:
            self._queue.append(request)

    def advance(self, until_s: float = inf) -> None:
        """Run iterations until one ends at `until_s` or later, or nothing is left to do.

        Raises:
            DeadlineExceeded: the deadline of the query has passed.
        """
        while self.now_s < until_s:
            check()
            if not self._sequences and self._chunk is None:
                if not self._queue or self._queue[0].arrival_s >= until_s:
                    return
                self.now_s = max(self.now_s, self._queue[0].arrival_s)
            if not self._make_room():
                self._decode(until_s, 1)
            elif not self._prefill():
                self._decode(until_s)

    def _make_room(self) -> bool:
        """Preempt the latest sequences until the next step has its blocks; True if none was."""
        had_room = True
        while self._free < self._needed():
            self._preempt()
            had_room = False
        return had_room

    def _needed(self) -> int:
        return self._phases[self._step % len(self._phases)]

    def _admissible(self, sequences: int) -> Request | None:
        """The first waiting request, if it may start now."""
        if not self._queue or sequences >= self.scheduler.max_sequences:
            return None
        request = self._queue[0]
        if self._ready_s(request) > self.now_s:
            return None
        if self.scheduler.reserves:
            needed, free = self._whole(request), self.scheduler.blocks - self._promised
        else:
            needed = self.scheduler.blocks_for(request.input_tokens + request.written)
            free = self._free - self._needed()
        return request if needed <= free else None

    def _ready_s(self, request: Request) -> float:
        """Earliest time at which a request may start, seconds."""
        hold = self.scheduler.held if self._sequences else 0.0
        return request.arrival_s + hold * self._step_s

    def _whole(self, request: Request) -> int:
        """Blocks that a request needs at full length."""
        return self.scheduler.blocks_for(request.input_tokens + request.output_tokens - 1)

    def _chunks(self, budget: int) -> Iterator[tuple[Request, int, int]]:
        """Prompt chunks of the next iteration: request, tokens done before, and tokens in it."""
        sequences = self._sequences
        whole = not self.scheduler.chunked_prefill
        if self._chunk is not None:
            partial, done = self._chunk
            count = min(budget, partial.input_tokens + partial.written - done)
            self._chunk = None
            budget -= count
            sequences += 1
            yield partial, done, count
        first = True
        while budget > 0 and (request := self._admissible(sequences)):
            uncached = request.input_tokens + request.written - request.cached_tokens
            if whole and uncached > budget and not first:
                return
            count = uncached if whole else min(uncached, budget)
            self._queue.popleft()
            request._blocks = self.scheduler.blocks_for(request.input_tokens + request.written)
            self._free -= request._blocks
            self._promised += self._whole(request)
            budget -= count
            sequences += 1
            first = False
            yield request, request.cached_tokens, count

    def _prefill(self) -> bool:
        """Run one iteration with prompt tokens; False if there are none."""
        mixed = self.scheduler.chunked_prefill
        budget = self.scheduler.max_batched_tokens - (self._sequences if mixed else 0)
        chunks = list(self._chunks(budget))
        if not chunks:
            return False
        tokens, pairs = 0, 0.0
        for _, before, count in chunks:
            tokens += count
            pairs += count * before + count * (count + 1) / 2
        sequences, context = (self._sequences, self._context) if mixed else (0, 0.0)
        self._pass(self.table.mixed(tokens, pairs, sequences, context))
        self.tokens[0] += tokens
        if mixed:
            self._step_on(1)
        for request, before, count in chunks:
            if before + count < request.input_tokens + request.written:
                self._chunk = (request, before + count)
            else:
                self._begin(request)
        self.most_blocks = max(self.most_blocks, self.scheduler.blocks - self._free)
        return True

    def _decode(self, until_s: float, only: int | None = None) -> None:
        """Run decode-only iterations: `only` of them, or up to the next event."""
        if not self._sequences:
            return
        size = self.scheduler.tokens_per_step
        limit = until_s
        if self._queue and self._sequences < self.scheduler.max_sequences:
            ready = self._ready_s(self._queue[0])
            limit = min(limit, ready) if ready > self.now_s else limit
        steps, seconds = self.table.decoding(self._sequences).advance(
            self._context / self._sequences,
            size,
            only or self._affordable(self._ends[0][0] - self._step),
            limit - self.now_s,
        )
        self._pass(seconds)
        self._step_s = seconds / steps
        self._step_on(steps)
        self.most_blocks = max(self.most_blocks, self.scheduler.blocks - self._free)

    def _pass(self, seconds: float) -> None:
        self.now_s += seconds
        self.busy_s += seconds
        self.sequence_s += seconds * self._sequences

    def _affordable(self, most: int) -> int:
        """Steps for which the free blocks suffice, at least 1 and at most `most`."""
        cycle = len(self._phases)
        rounds = self._free // self._sequences
        if most <= rounds * cycle:
            return most
        steps, free = rounds * cycle, self._free - rounds * self._sequences
        while steps < most and (free := free - self._phases[(self._step + steps) % cycle]) >= 0:
            steps += 1
        return max(1, steps)

    def _step_on(self, steps: int) -> None:
        """Advance all decoding sequences by `steps`; finished ones leave the batch."""
        cycle = len(self._phases)
        rounds, rest = divmod(steps, cycle)
        taken = rounds * self._sequences
        for step in range(self._step, self._step + rest):
            taken += self._phases[step % cycle]
        self._free -= taken
        self._step += steps
        self._context += steps * self._sequences * self.scheduler.tokens_per_step
        while self._ends and self._ends[0][0] <= self._step:
            request = heappop(self._ends)[2]
            self._release(request)
            self._promised -= self._whole(request)
            request.finished_s = self.now_s

    def _begin(self, request: Request) -> None:
        """Generate the token that ends a request's prefill, and start its decode."""
        request.written += 1
        self.tokens[1] += 1
        if request.written == 1:
            request.first_token_s = self.now_s
        if request.written == request.output_tokens:
            self._free += request._blocks
            self._promised -= self._whole(request)
            request.finished_s = self.now_s
        else:
            self._start(request)

    def _start(self, request: Request) -> None:
        size, cycle = self.scheduler.tokens_per_step, len(self._phases)
        context = request.input_tokens + request.written - 1
        room = -context % self.scheduler.block_tokens
        request._decoding_since, request._written_before = self._step, request.written
        request._phase = (self._step + round(room / size)) % cycle
        self._phases[request._phase] += 1
        self._sequences += 1
        self._context += context
        self._order += 1
        steps = ceil((request.output_tokens - request.written) / size - 1e-9)
        heappush(self._ends, (self._step + steps, self._order, request))
        self._admitted.append(request)

    def _release(self, request: Request) -> None:
        """Remove a decoding sequence from the batch and free its blocks."""
        steps, cycle = self._step - request._decoding_since, len(self._phases)
        size = self.scheduler.tokens_per_step
        before = (request._phase - request._decoding_since) % cycle
        self._free += request._blocks + (steps - before + cycle - 1) // cycle
        context = request.input_tokens + request._written_before - 1 + steps * size
        gained = min(round(steps * size), request.output_tokens - request._written_before)
        request.written = request._written_before + gained
        request._decoding_since = -1
        self.tokens[1] += gained
        self._phases[request._phase] -= 1
        self._sequences -= 1
        self._context = self._context - context if self._sequences else 0.0

    def _preempt(self) -> None:
        """Free the blocks of the sequence admitted last, and put it at the front of the queue."""
        if self._chunk is not None:
            request, self._chunk = self._chunk[0], None
            self._free += request._blocks
        else:
            while (request := self._admitted.pop())._decoding_since < 0:
                pass
            self._ends = [end for end in self._ends if end[2] is not request]
            heapify(self._ends)
            self._release(request)
        self._promised -= self._whole(request)
        request.preemptions += 1
        if request.cached_tokens == request.input_tokens:
            request.cached_tokens = 0
        self._queue.appendleft(request)
