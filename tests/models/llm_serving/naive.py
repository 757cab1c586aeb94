"""Continuous batching one iteration at a time, written for clarity, to check the fast one by."""

from dataclasses import dataclass
from math import ceil

import numpy as np

from forerun.data.language_models.requests import Requests
from forerun.features.llm_serving.iteration import Iterations


@dataclass(frozen=True)
class LinearTime:
    """Times linear in every quantity but the number of prompts."""

    fixed_s: float = 0.005
    token_s: float = 2e-5
    pair_s: float = 1e-9
    sequence_s: float = 1e-5
    context_s: float = 3e-8

    def seconds(self, iterations):
        return (
            self.fixed_s
            + self.token_s * iterations.prefill_tokens
            + self.pair_s * iterations.prefill_pairs
            + self.sequence_s * iterations.decode_sequences
            + self.context_s * iterations.decode_context
        )


@dataclass
class Running:
    number: int
    arrival: float
    prompt: int
    output: int
    cached: int
    done: int = 0
    written: int = 0
    blocks: int = 0
    first: float = float("nan")
    last: float = float("nan")
    preemptions: int = 0

    @property
    def target(self):
        return self.prompt + self.written


def naive_replay(requests, scheduler, time, cached_share=0.0):  # noqa: C901, PLR0915 (one loop)
    """(first token, last token, preemptions) of each request on one rank that decodes a token a
    step.
    """
    every = [
        Running(i, float(a), int(p), int(o), min(int(cached_share * p), int(p) - 1))
        for i, (a, p, o) in enumerate(
            zip(requests.arrival_s, requests.input_tokens, requests.output_tokens, strict=True)
        )
    ]
    waiting, decoding, chunk, now, free = list(every), [], None, 0.0, scheduler.blocks

    def need(tokens):
        return ceil(tokens / scheduler.block_tokens)

    def in_cache(one):
        return one.prompt + one.written - 1

    def growing():
        return sum(in_cache(d) % scheduler.block_tokens == 0 for d in decoding)

    while waiting or decoding or chunk:
        if not decoding and chunk is None:
            now = max(now, waiting[0].arrival)
        preempted = False
        while free < growing():
            victim = decoding.pop() if chunk is None else chunk
            chunk = None
            free += victim.blocks
            victim.blocks, victim.done = 0, 0
            victim.preemptions += 1
            waiting.insert(0, victim)
            preempted = True
        whole = not scheduler.chunked_prefill
        budget = scheduler.max_batched_tokens - (0 if whole else len(decoding))
        parts = []
        while not preempted and budget > 0:
            if chunk is None:
                count = len(decoding) + len(parts)
                if not waiting or waiting[0].arrival > now or count >= scheduler.max_sequences:
                    break
                if need(waiting[0].target) + growing() > free:
                    break
                left = waiting[0].target - waiting[0].cached
                if whole and left > budget and parts:
                    break
                chunk = waiting.pop(0)
                chunk.done, chunk.blocks = chunk.cached, need(chunk.target)
                free -= chunk.blocks
            count = chunk.target - chunk.done
            count = count if whole else min(budget, count)
            parts.append((chunk, chunk.done, count))
            chunk.done += count
            budget -= count
            if chunk.done == chunk.target:
                chunk = None
        batch = [] if whole and parts else list(decoding)
        if not parts and not batch:
            continue
        now += _seconds(time, parts, batch, in_cache)
        for one in batch:
            if in_cache(one) % scheduler.block_tokens == 0:
                free -= 1
                one.blocks += 1
            one.written += 1
        for one, before, count in parts:
            if before + count == one.target:
                one.written += 1
                one.first = now if one.written == 1 else one.first
                decoding.append(one)
        for one in [d for d in decoding if d.written == d.output]:
            decoding.remove(one)
            free += one.blocks
            one.last = now
    assert free == scheduler.blocks
    return tuple(
        np.array([getattr(one, name) for one in every]) for name in ("first", "last", "preemptions")
    )


def _seconds(time, parts, batch, in_cache):
    values = (
        sum(count for _, _, count in parts),
        sum(count * before + count * (count + 1) / 2 for _, before, count in parts),
        len(parts),
        len(batch),
        sum(in_cache(one) for one in batch),
    )
    return float(time.seconds(Iterations(*(np.array([float(v)]) for v in values)))[0])


def random_requests(load, count, seed):
    """Poisson arrivals and log-normal lengths with the load's means and variations."""
    random = np.random.default_rng(seed)
    arrivals = np.cumsum(random.standard_exponential(count)) / load.requests_per_s
    lengths = []
    for mean, variation in (
        (load.input_tokens, load.input_variation),
        (load.output_tokens, load.output_variation),
    ):
        spread = np.sqrt(np.log1p(variation**2))
        drawn = mean * np.exp(spread * random.standard_normal(count) - spread**2 / 2)
        lengths.append(np.maximum(1, np.rint(drawn)).astype(np.intp))
    return Requests(arrivals, *lengths)
