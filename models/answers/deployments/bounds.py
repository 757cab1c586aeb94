"""Estimates of deployed language models within what the spec sheets of their devices allow.

Estimates are fitted to measured runs, and the ends of their intervals know nothing of a spec sheet,
nor, being fitted for each time alone, of the time that another one is a part of.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix
from forerun.data.language_models.deployment import Pool
from forerun.data.query import Query
from forerun.features.llm_serving.least_times import LeastTimes, least_times
from forerun.models.llm_serving.iteration_table import TimeColumns
from forerun.models.prediction import Estimate, Prediction

MOST_USED: Final = 0.72
"""Share of the arithmetic peak that prompts take in 999 of 1,000 measured aggregated runs at most;
no best estimate takes more."""
MOST_WORKED: Final = 0.77
"""The same of prompts and of the tokens of answers together."""
MOST_READ: Final = 0.9
"""Least time per token over the measured one in 997 of 1,000 measured aggregated runs at most; no
best estimate is closer."""


Bound = Column | float
"""One for each of n deployments, (n,), or one for all."""


class _Shares(NamedTuple):
    """Shares of the sheet's figures that best estimates take at most, of one deployment or (n,)."""

    bandwidth: Bound
    arithmetic: Bound
    work: Bound


USUAL: Final = _Shares(MOST_READ, MOST_USED, MOST_WORKED)
ALL: Final = _Shares(1.0, 1.0, 1.0)
TIMES: Final = ("ttft_ms", "tpot_ms", "request_latency_ms")
"""The last is the first and one of the second for each further token."""
RATES: Final = ("requests_per_s", "tokens_per_s", "tokens_per_s_per_device")
FIRST, SERVED, WHOLE = "ttft_ms", "ttft_service_ms", "request_latency_ms"


class _Loads(NamedTuple):
    """Loads of n deployments, each (n,).

    Attributes:
        in_flight: requests in flight; NaN where they arrive at a rate of their own.
        output: tokens of an answer.
        after: tokens of an answer after the first.
        devices: devices of all pools.
        decoded: requests that all ranks and stages which decode work on at a time.
        prompts: the same of those that take prompts.
        apart: whether prompts have workers of their own.
        ranks: ranks that decode.
    """

    in_flight: Column
    output: Column
    after: Column
    devices: Column
    decoded: Column
    prompts: Column
    apart: Mask
    ranks: Column

    @classmethod
    def of(cls, queries: Sequence[Query]) -> Self:
        deployments = [query.deployment for query in queries]
        rows = [
            (
                one.load.concurrency,
                one.load.output_tokens,
                one.devices,
                _at_once(one.pool),
                _at_once(one.prefill or one.pool),
                one.prefill is not None,
                one.pool.workers * one.pool.parallelism.attention_data,
            )
            for one in deployments
        ]
        columns = np.array(rows, dtype=np.float64).reshape(-1, 7).T
        in_flight, output, devices, decoded, prompts, apart, ranks = columns
        after = np.maximum(output - 1.0, 0.0)
        return cls(in_flight, output, after, devices, decoded, prompts, apart > 0.0, ranks)


def within_sheets(
    queries: Sequence[Query], times: TimeColumns, measured: Sequence[bool] = ()
) -> TimeColumns:
    """The times of n deployments, none of them and no end of an interval below the least possible.

    Intervals end at the least times, and best estimates take a share of what the sheet allows;
    where that moves one, its interval keeps its ratios to it. The rate of a closed loop is at most
    that of the requests in flight, each in its least time, and that at which ranks and stages can
    work on prompts and tokens. Requests wait for as long as that takes.

    Args:
        queries: deployments.
        times: their times and rates.
        measured: whether the times of each follow measured runs of a user on the device, whose
            best estimates may then take all that the sheet allows; none does where it is empty.

    Raises:
        UnknownBandwidth, UnknownPrecision: a device's sheet lacks a figure.
    """
    if not queries:
        return times
    loads = _Loads.of(queries)
    least = least_times(queries, _decoding(loads, times))
    shares = [ALL if own else USUAL for own in measured or [False] * len(queries)]
    share = _Shares(*np.array(shares).T)
    with np.errstate(all="ignore"):
        return replace(times, estimates=_bounded(times.estimates, loads, least, share))


def _decoding(loads: _Loads, times: TimeColumns) -> Column:
    """Sequences that a rank decodes together on average, by Little's law; at least one, (n,)."""
    nothing = np.full((len(times), 1), np.nan)
    rate, tpot = (times.estimates.get(name, nothing)[:, 0] for name in (RATES[0], "tpot_ms"))
    return np.fmax(1.0, rate * loads.after * tpot / 1e3 / loads.ranks)


def _bounded(
    times: Mapping[str, Matrix], loads: _Loads, least_s: LeastTimes, share: _Shares
) -> dict[str, Matrix]:
    """Times and rates of n deployments within their least times, each (n, 3)."""
    tpot, ttft = 1e3 * least_s.tpot, 1e3 * least_s.ttft
    prompts = 1e3 * least_s.prompt / loads.prompts
    request = loads.after * (1e3 * least_s.token) / loads.decoded
    request = np.maximum(prompts, request + np.where(loads.apart, 0.0, prompts))
    latency = np.fmax(ttft + loads.after * tpot, loads.in_flight * request)
    full = loads.in_flight * np.maximum(prompts / share.arithmetic, request / share.work)
    full = np.where(np.isnan(full), 0.0, full)
    least = {"tpot_ms": tpot, "ttft_ms": ttft, "ttft_service_ms": ttft}
    usual = {name: own / share.arithmetic for name, own in least.items()}
    usual["tpot_ms"] = tpot / share.bandwidth
    least["request_latency_ms"] = usual["request_latency_ms"] = latency
    rate = np.where(np.isnan(loads.in_flight), np.inf, 1e3 * loads.in_flight / latency)
    tokens = rate * loads.output
    most = dict(zip(RATES, (rate, tokens, tokens / loads.devices), strict=True))
    bounds = {name: (least.get(name, 0.0), most.get(name, np.inf)) for name in times}
    estimates = {
        name: _moved(own, np.maximum(own[:, 0], usual.get(name, 0.0)), *bounds[name])
        for name, own in times.items()
    }
    if not set(TIMES) <= times.keys():
        return estimates
    first, each, whole = (estimates[name] for name in TIMES)
    tokens_ms = loads.after * each[:, 0]
    sum_ms = first[:, 0] + tokens_ms
    late_ms = np.maximum(np.maximum(sum_ms, whole[:, 0]), full)
    first = _moved(first, first[:, 0] + late_ms - sum_ms, *bounds["ttft_ms"])
    before = times["request_latency_ms"]
    whole = _sum(_moved(before, late_ms, latency, np.inf), first, each, loads.after)
    waits = (full >= late_ms)[:, None]
    found = {
        "ttft_ms": np.where(waits, _rest(first, whole, tokens_ms), first),
        "request_latency_ms": whole,
    }
    slower, closed = before[:, 0] / late_ms, ~np.isnan(loads.in_flight)[:, None]
    for name in most.keys() & times.keys():
        value = np.minimum(estimates[name][:, 0], slower * times[name][:, 0])
        own = _of_latency(_moved(times[name], value, *bounds[name]), whole)
        found[name] = np.where(closed, own, estimates[name])
    known = ~np.isnan(late_ms)[:, None]
    return estimates | {n: np.where(known, own, estimates[n]) for n, own in found.items()}


def _sum(whole: Matrix, first: Matrix, each: Matrix, number: Column) -> Matrix:
    """The time of a request, whose interval is no wider than its parts' both at an end, (n, 3)."""
    least, most = (first + number[:, None] * each)[:, 1:].T
    return _narrowed(whole, least, most)


def _rest(first: Matrix, whole: Matrix, tokens_ms: Column) -> Matrix:
    """The first time of a request that waits, no less certain than the whole one without tokens."""
    least, most = (whole - tokens_ms[:, None])[:, 1:].T
    return _narrowed(first, least, most)


def _of_latency(rate: Matrix, latency: Matrix) -> Matrix:
    """The rate of a closed loop, whose interval is no wider than that of the time of a request."""
    value, low, high = latency.T
    down, up = (value / np.where(end == 0.0, 1.0, end) for end in (high, low))
    return _narrowed(rate, rate[:, 0] * down, rate[:, 0] * up)


def _narrowed(own: Matrix, least: Column, most: Column) -> Matrix:
    """Estimates with intervals within some ends, which hold the estimates; (n, 3).

    An estimate without an interval, or for which an end is not known, is not changed.
    """
    value, low, high = own.T
    ends = np.minimum(np.maximum(low, least), value), np.maximum(np.minimum(high, most), value)
    known = ~np.isnan(ends[0] + ends[1])[:, None]
    return np.where(known, np.array([value, *ends]).T, own)


def _moved(own: Matrix, value: Column, least: Bound, most: Bound) -> Matrix:
    """Estimates at other values, their intervals in the same ratios to them, all within bounds."""
    value = np.minimum(np.maximum(value, least), most)
    ratio = np.where(own[:, 0] > 0.0, value / own[:, 0], 1.0)
    low, high = (np.minimum(np.maximum(ratio * end, least), most) for end in own[:, 1:].T)
    return np.array([value, low, high]).T


def _at_once(pool: Pool) -> int:
    """Requests that all ranks and stages of a pool work on at a time."""
    split = pool.parallelism
    return pool.workers * split.attention_data * split.pipeline


def parts_within_wholes(time: Prediction, output_tokens: float) -> Prediction:
    """The times, where no part of a time and no end of its interval is longer than the whole.

    The time to the first token is the one that is measured: its part without queueing, which no run
    measures, has no end beyond it, and no end of the time of a request is before it. A request with
    one token of an answer takes as long as that token: both have the tighter ends of the two.

    Args:
        time: times of a deployment.
        output_tokens: tokens of an answer.
    """
    known = dict(time.estimates)
    first = known.get(FIRST)
    if first is None:
        return time
    if WHOLE in known and output_tokens <= 1.0:
        first = known[FIRST] = known[WHOLE] = _same(first, known[WHOLE])
    if SERVED in known:
        known[SERVED] = _at_most(known[SERVED], first)
    if WHOLE in known:
        known[WHOLE] = _at_least(known[WHOLE], first)
    return replace(time, estimates=known)


def _same(first: Estimate, whole: Estimate) -> Estimate:
    """The longer of two estimates of one time, with the tighter ends of both around it."""
    one = _at_least(whole, first)
    if None in (first.low, first.high, whole.low, whole.high):
        return one
    high = min(first.high or 0.0, whole.high or 0.0)
    return replace(one, high=max(high, one.value))


def _at_most(part: Estimate, whole: Estimate) -> Estimate:
    """A part of a time, whose value and ends are those of the whole where they are longer."""
    if None in (part.low, part.high, whole.low, whole.high):
        return replace(part, value=min(part.value, whole.value))
    low, high = min(part.low or 0.0, whole.low or 0.0), min(part.high or 0.0, whole.high or 0.0)
    value = min(part.value, whole.value)
    return replace(part, value=value, low=low, high=max(high, value))


def _at_least(whole: Estimate, part: Estimate) -> Estimate:
    """A time, whose value and ends are those of a part of it where they are shorter."""
    if None in (part.low, part.high, whole.low, whole.high):
        return replace(whole, value=max(part.value, whole.value))
    low, high = max(part.low or 0.0, whole.low or 0.0), max(part.high or 0.0, whole.high or 0.0)
    value = max(part.value, whole.value)
    return replace(whole, value=value, low=min(low, value), high=high)
