"""A load in closed form: how many sequences decode, how long requests wait, what can be served.

Requests that arrive at random share the iterations of a rank, so the number that decodes has the
distribution of a processor-sharing queue whose rate depends on that number. A prompt waits for the
end of an iteration, and shares the next one with all prompts that arrived during it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
from scipy.special import ndtr

from forerun.data.columns import Column
from forerun.data.language_models.deployment import LlmDeployment, RequestLoad
from forerun.models.llm_serving.rank_times import LimitedBy, RankTimes
from forerun.models.llm_serving.scheduler import Scheduler
from forerun.models.llm_serving.statistics import Statistics
from forerun.models.llm_serving.worker import Worker

MOST_UTILISATION: Final[Mapping[LimitedBy, float]] = MappingProxyType(
    {"sequences": 0.98, "prompts": 0.95, "cache": 0.75}
)
"""Share of the capacity above which waits are not answered, by what limits the sequences: there
they depend on how long the load lasts, and on preemptions where the cache is short."""
_TAIL: Final = 4096


@dataclass(frozen=True, slots=True)
class LoadAnswer:
    """A deployment under a load.

    Attributes:
        requests_per_s: requests answered a second, all ranks.
        capacity_requests_per_s: most requests a second that can be answered.
        utilisation: arrivals over this capacity.
        ttft: from a request to its first token, with queueing, seconds; None where the arrivals
            are above `MOST_UTILISATION` of the capacity.
        ttft_service_s: the same without queueing, mean.
        tpot: time of each token after the first, seconds.
        latency: from a request to its last token, seconds; None as `ttft`.
        sequences: sequences that decode on one rank, mean.
        cache_tokens: tokens in their caches.
        limited_by: what keeps a rank from decoding more sequences.
    """

    requests_per_s: float
    capacity_requests_per_s: float
    utilisation: float
    ttft: Statistics | None
    ttft_service_s: float
    tpot: Statistics
    latency: Statistics | None
    sequences: float
    cache_tokens: float
    limited_by: LimitedBy


@dataclass(frozen=True, slots=True)
class _Spread:
    """Mean and variance of a positive time, (n,) or a number, seconds."""

    mean: Column
    variance: Column


def open_loop(deployment: LlmDeployment, worker: Worker) -> LoadAnswer:
    """Poisson arrivals at `deployment.load.requests_per_s` on a pool that does both phases.

    Args:
        deployment: load, engine and pool; every rank has an equal share of the arrivals.
        worker: times of an iteration, and room in the cache of a rank.

    Raises:
        ValueError: the load has no rate.
    """
    load = deployment.load
    if load.requests_per_s is None:
        raise ValueError("An open loop needs the rate of arrivals.")
    scheduler = Scheduler.of(deployment.engine, worker)
    times = RankTimes.of(load, scheduler, worker)
    ranks = deployment.pool.workers * deployment.pool.parallelism.attention_data
    return _answer(load, scheduler, times, load.requests_per_s / ranks, ranks)


def _answer(
    load: RequestLoad, scheduler: Scheduler, times: RankTimes, arrivals: float, ranks: int
) -> LoadAnswer:
    capacity = times.capacity()
    most = MOST_UTILISATION[times.limited_by] * capacity
    saturated, rate = arrivals > most, min(arrivals, most)
    states = _states(times, rate)
    together = scheduler.chunked_prefill
    batch = np.minimum(np.arange(len(states)), times.limit)
    wait = _waits(times, rate, together)
    busy = batch * states
    sequences = float(busy.sum())
    tpot = _tpot(times, rate, states, scheduler.tokens_per_step)
    ttft = _with_admission(wait, times, rate, states)
    own = times.prompt_s + (times.iterations * times.decode_s if together else 0.0)
    latency = _latency(load, ttft, tpot)
    return LoadAnswer(
        ranks * min(arrivals, capacity),
        ranks * capacity,
        arrivals / capacity,
        None if saturated else _mixture(ttft, states),
        float(own[batch] @ states),
        _mixture(tpot, np.ones(1)),
        None if saturated else _mixture(latency, states),
        sequences,
        sequences * times.context,
        times.limited_by,
    )


def _states(times: RankTimes, rate: float) -> Column:
    """Probability that 0, 1, ... requests decode or wait for room, shape (states,)."""
    if not times.steps:
        return np.ones(1)
    many = np.arange(1.0, times.limit + 1)
    free = np.maximum(1 - rate * times.prompt_s[1:], 1e-3)
    ratio = np.log(rate * times.steps * times.decode_s[1:] / (free * many))
    logs = np.concatenate(([0.0], np.cumsum(ratio)))
    tail = logs[-1] + ratio[-1] * np.arange(1, _TAIL) if ratio[-1] < 0 else np.empty(0)
    logs = np.concatenate((logs, tail))
    weights = np.exp(logs - logs.max())
    kept = weights[: 2 + int(np.flatnonzero(weights > 1e-6)[-1])]
    return np.asarray(kept / kept.sum())


def _waits(times: RankTimes, rate: float, together: bool) -> _Spread:
    """From arrival to first token where 0 to `limit` sequences decode, without admission."""
    own, own2 = times.prompt_s, times.prompt_s2
    load = np.minimum(rate * own, 0.999)
    queue = rate * own2 / (2 * (1 - load))
    own_variance = np.maximum(0.0, own2 - own**2)
    third = own2**2 / np.maximum(own, 1e-12)
    turn = _Spread(queue + own, queue**2 + rate * third / (3 * (1 - load)) + own_variance)
    pause = times.decode_s
    if not together:
        return _Spread(turn.mean + pause / 2, turn.variance + pause**2 / 12)
    length = pause / (1 - load)
    spread = rate * length * own2 / (1 - load**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        biased = length + spread / length
        third = length**2 * (1 + spread / length**2) ** 3
        mean = biased / 2 + times.iterations * pause + own * (1 + rate * biased)
        variance = third / 3 - biased**2 / 4 + rate * biased * own2 + own_variance
    return _Spread(
        np.where(pause > 0, mean, turn.mean), np.where(pause > 0, variance, turn.variance)
    )


def _with_admission(wait: _Spread, times: RankTimes, rate: float, states: Column) -> _Spread:
    """The same for each state, with the wait for those that have to end first."""
    batch = np.minimum(np.arange(len(states)), times.limit)
    behind = np.maximum(0.0, np.arange(len(states)) - times.limit + 1)
    free = max(1 - rate * times.prompt_s[-1], 1e-3)
    each = times.steps * times.decode_s[-1] / (free * times.limit)
    return _Spread(wait.mean[batch] + behind * each, wait.variance[batch] + behind * each**2)


def _tpot(times: RankTimes, rate: float, states: Column, tokens_per_step: float) -> _Spread:
    """Time of a token: the mean over requests, and the variance between requests."""
    many = np.minimum(np.arange(len(states)), times.limit)
    share = many * states
    if not share.sum():
        return _Spread(np.full(1, np.nan), np.zeros(1))
    share = share / share.sum()
    each = times.decode_s[many] / np.maximum(1 - rate * times.prompt_s[many], 1e-3)
    mean = float(share @ each)
    drift = 2 / 3 * float(share @ (each - mean) ** 2)
    prompts = rate * mean * float(share @ times.prompt_s2[many]) * times.per_step
    return _Spread(
        np.array([mean / tokens_per_step]), np.array([(drift + prompts) / tokens_per_step**2])
    )


def _latency(load: RequestLoad, ttft: _Spread, tpot: _Spread) -> _Spread:
    """Time to the last token in each state."""
    written = max(0.0, load.output_tokens - 1)
    if not written:
        return ttft
    lengths = (load.output_tokens * load.output_variation * tpot.mean) ** 2
    variance = ttft.variance + written**2 * tpot.variance + lengths
    return _Spread(ttft.mean + written * tpot.mean, variance)


def _mixture(times: _Spread, weights: Column) -> Statistics:
    """Mean and percentiles of a mixture of log-normal times."""
    kept = weights > 1e-5
    share, mean = weights[kept] / weights[kept].sum(), times.mean[kept]
    spread = np.sqrt(np.log1p(times.variance[kept] / mean**2))
    if np.isnan(mean).any():
        return Statistics(*[float("nan")] * 4)
    middle = np.log(mean) - spread**2 / 2
    spread = np.maximum(spread, 1e-6)
    grid = np.linspace((middle - 4 * spread).min(), (middle + 4 * spread).max(), 400)
    below = ndtr((grid[:, None] - middle) / spread) @ share
    p50, p90, p99 = np.exp(np.interp((0.5, 0.9, 0.99), below, grid))
    return Statistics(float(share @ mean), float(p50), float(p90), float(p99))
