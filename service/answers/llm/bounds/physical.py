"""Estimates of deployed language models within what the spec sheets of their devices allow.

Estimates are fitted to measured runs, and the ends of their intervals know nothing of a spec sheet.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from forerun.data.language_models.deployment import Pool
from forerun.data.query import Query
from forerun.features.llm_serving.least_times import least_times
from forerun.models.prediction import Estimate, Prediction

MOST_USED: Final = 0.72
"""Share of the arithmetic peak that prompts take in 999 of 1,000 measured aggregated runs at most;
no best estimate takes more."""
MOST_WORKED: Final = 0.77
"""The same of prompts and of the tokens of answers together."""
MOST_READ: Final = 0.9
"""Least time per token over the measured one in 995 of 1,000 measured aggregated runs at most; no
best estimate is closer."""


class _Shares(NamedTuple):
    """Shares of the sheet's figures that best estimates take at most."""

    bandwidth: float
    arithmetic: float
    work: float


class _LeastMs(NamedTuple):
    """The fields of `LeastTimes` of one deployment, ms."""

    tpot: float
    ttft: float
    prompt: float
    token: float


USUAL: Final = _Shares(MOST_READ, MOST_USED, MOST_WORKED)
ALL: Final = _Shares(1.0, 1.0, 1.0)
TIMES: Final = ("ttft_ms", "tpot_ms", "request_latency_ms")
"""The last is the first and one of the second for each further token."""


def within_sheets(
    queries: Sequence[Query], times: Sequence[Prediction], measured: Sequence[bool] = ()
) -> list[Prediction]:
    """The times of n deployments, none of them and no end of an interval below the least possible.

    Args:
        queries: deployments.
        times: their times and rates.
        measured: whether the times of each follow measured runs of a user on the device, whose
            best estimates may then take all that the sheet allows; none does where it is empty.

    Raises:
        UnknownBandwidth, UnknownPrecision: a device's sheet lacks a figure.
    """
    decoding = np.array([_decoding(*pair) for pair in zip(queries, times, strict=True)])
    least = least_times(queries, decoding)
    shares = [ALL if own else USUAL for own in measured or [False] * len(queries)]
    return [
        _bounded(query, time, _LeastMs(*(1e3 * seconds for seconds in own)), share)
        for query, time, share, *own in zip(
            queries,
            times,
            shares,
            *(getattr(least, name).tolist() for name in _LeastMs._fields),
            strict=True,
        )
    ]


def _decoding(query: Query, time: Prediction) -> float:
    """Sequences that a rank decodes together on average, by Little's law; at least one."""
    rate, tpot = (time.estimates.get(name) for name in ("requests_per_s", "tpot_ms"))
    if rate is None or tpot is None:
        return 1.0
    deployment = query.deployment
    ranks = deployment.pool.workers * deployment.pool.parallelism.attention_data
    tokens = max(deployment.load.output_tokens - 1.0, 0.0)
    return max(1.0, rate.value * tokens * tpot.value / 1e3 / ranks)


def _bounded(query: Query, time: Prediction, least_ms: _LeastMs, share: _Shares) -> Prediction:
    """The times and rates of one deployment within the least times of `LeastTimes`.

    Intervals end at the least times, and best estimates take a share of what the sheet allows;
    where that moves one, its interval keeps its ratios to it. The rate of a closed loop is at most
    that of the requests in flight, each in its least time, and that at which ranks and stages can
    work on prompts and tokens. Requests wait for as long as that takes.
    """
    deployment, load = query.deployment, query.deployment.load
    tpot_ms, ttft_ms = least_ms.tpot, least_ms.ttft
    tokens_after = max(load.output_tokens - 1.0, 0.0)
    latency_ms = ttft_ms + tokens_after * tpot_ms
    least = {"tpot_ms": tpot_ms}
    least |= dict.fromkeys(("ttft_ms", "ttft_service_ms"), ttft_ms)
    most, full_ms = {}, 0.0
    if load.concurrency is not None:
        prompts_ms = least_ms.prompt / _at_once(deployment.prefill or deployment.pool)
        request_ms = tokens_after * least_ms.token / _at_once(deployment.pool)
        if deployment.prefill is None:
            request_ms += prompts_ms
        request_ms = max(prompts_ms, request_ms)
        latency_ms = max(latency_ms, load.concurrency * request_ms)
        rate = 1e3 * load.concurrency / latency_ms
        tokens = rate * load.output_tokens
        most = {"requests_per_s": rate, "tokens_per_s": tokens}
        most["tokens_per_s_per_device"] = tokens / deployment.devices
        busy_ms = max(prompts_ms / share.arithmetic, request_ms / share.work)
        full_ms = load.concurrency * busy_ms
    least["request_latency_ms"] = latency_ms
    usual = {"tpot_ms": tpot_ms / share.bandwidth}
    usual |= dict.fromkeys(("ttft_ms", "ttft_service_ms"), ttft_ms / share.arithmetic)
    bounds = {name: (least.get(name, 0.0), most.get(name, np.inf)) for name in time.estimates}
    estimates = {
        name: _moved(own, max(own.value, usual.get(name, least.get(name, 0.0))), *bounds[name])
        for name, own in time.estimates.items()
    }
    if set(TIMES) <= estimates.keys():
        first, each, whole = (estimates[name] for name in TIMES)
        sum_ms = first.value + tokens_after * each.value
        late_ms = max(sum_ms, whole.value, full_ms)
        first = _moved(first, first.value + late_ms - sum_ms, *bounds["ttft_ms"])
        whole = _moved(time.estimates["request_latency_ms"], late_ms, latency_ms, np.inf)
        estimates["request_latency_ms"] = _sum(whole, first, each, tokens_after)
        if full_ms >= late_ms:
            first = _rest(first, estimates["request_latency_ms"], tokens_after * each.value)
        estimates["ttft_ms"] = first
        slower = time.estimates["request_latency_ms"].value / late_ms
        for name in most.keys() & estimates.keys():
            own = time.estimates[name]
            own = _moved(own, min(estimates[name].value, slower * own.value), *bounds[name])
            estimates[name] = _of_latency(own, estimates["request_latency_ms"])
    return replace(time, estimates=estimates)


def _sum(whole: Estimate, first: Estimate, each: Estimate, number: float) -> Estimate:
    """The time of a request, whose interval is no wider than its parts' both at an end."""
    ends = (whole.low, whole.high, first.low, first.high, each.low, each.high)
    if None in ends:
        return whole
    low, high, *parts = (float(end) for end in ends if end is not None)
    least, most = (parts[end] + number * parts[2 + end] for end in (0, 1))
    low, high = min(max(low, least), whole.value), max(min(high, most), whole.value)
    return replace(whole, low=low, high=high)


def _rest(first: Estimate, whole: Estimate, tokens_ms: float) -> Estimate:
    """The first time of a request that waits, no less certain than the whole one without tokens."""
    if None in (first.low, first.high, whole.low, whole.high):
        return first
    low = max(first.low or 0.0, (whole.low or 0.0) - tokens_ms)
    high = min(first.high or 0.0, (whole.high or 0.0) - tokens_ms)
    return replace(first, low=min(low, first.value), high=max(high, first.value))


def _of_latency(rate: Estimate, latency: Estimate) -> Estimate:
    """The rate of a closed loop, whose interval is no wider than that of the time of a request."""
    if None in (rate.low, rate.high, latency.low, latency.high):
        return rate
    down, up = latency.value / (latency.high or 1.0), latency.value / (latency.low or 1.0)
    low, high = max(rate.low or 0.0, rate.value * down), min(rate.high or 0.0, rate.value * up)
    return replace(rate, low=min(low, rate.value), high=max(high, rate.value))


def _moved(own: Estimate, value: float, least: float, most: float) -> Estimate:
    """An estimate at another value, its interval in the same ratios to it, all within bounds."""
    value = min(max(value, least), most)
    ratio = value / own.value if own.value > 0.0 else 1.0
    low, high = (
        None if end is None else min(max(ratio * end, least), most) for end in (own.low, own.high)
    )
    return Estimate(value, low, high, own.coverage)


def _at_once(pool: Pool) -> int:
    """Requests that all ranks and stages of a pool work on at a time."""
    split = pool.parallelism
    return pool.workers * split.attention_data * split.pipeline
