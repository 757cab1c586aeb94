"""Keeps estimates of deployed language models within the limits of the devices' spec sheets.

Predictors are fitted to measured runs, each time separately. Their intervals therefore respect
neither a spec sheet nor the fact that one time is part of another.
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
"""Largest share of peak arithmetic throughput that prompts reach in 999 of 1,000 measured
aggregated runs; best estimates do not exceed it."""
MOST_WORKED: Final = 0.77
"""The same for prompts and output tokens together."""
MOST_READ: Final = 0.9
"""Largest ratio of the least time per token to the measured one in 997 of 1,000 measured aggregated
runs; best estimates do not exceed it."""


Bound = Column | float
"""One value per deployment, (n,), or one for all."""


class _Shares(NamedTuple):
    """Largest shares of the spec sheet's figures that best estimates may use, scalar or (n,)."""

    bandwidth: Bound
    arithmetic: Bound
    work: Bound


USUAL: Final = _Shares(MOST_READ, MOST_USED, MOST_WORKED)
ALL: Final = _Shares(1.0, 1.0, 1.0)
TIMES: Final = ("ttft_ms", "tpot_ms", "request_latency_ms")
"""The last is the first plus the second for each further token."""
RATES: Final = ("requests_per_s", "tokens_per_s", "tokens_per_s_per_device")
FIRST, SERVED, WHOLE = "ttft_ms", "ttft_service_ms", "request_latency_ms"


class _Loads(NamedTuple):
    """Load figures of n deployments, each (n,).

    Attributes:
        in_flight: requests in flight; NaN where requests arrive at a rate.
        output: output tokens of a request.
        after: output tokens after the first.
        devices: devices of all pools.
        decoded: requests that all decoding ranks and stages process at once.
        prompts: requests that all prefill ranks and stages process at once.
        apart: whether prefill has its own workers.
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
                deployment.load.concurrency,
                deployment.load.output_tokens,
                deployment.devices,
                _at_once(deployment.pool),
                _at_once(deployment.prefill or deployment.pool),
                deployment.prefill is not None,
                deployment.pool.workers * deployment.pool.parallelism.attention_data,
            )
            for deployment in deployments
        ]
        columns = np.array(rows, dtype=np.float64).reshape(-1, 7).T
        in_flight, output, devices, decoded, prompts, apart, ranks = columns
        after = np.maximum(output - 1.0, 0.0)
        return cls(in_flight, output, after, devices, decoded, prompts, apart > 0.0, ranks)


def within_sheets(
    queries: Sequence[Query], times: TimeColumns, measured: Sequence[bool] = ()
) -> TimeColumns:
    """The times of n deployments, bounded from below by the least possible ones.

    Intervals are cut at the least times, and best estimates at a share of the spec sheet's peaks;
    an estimate that moves keeps the relative width of its interval. The rate of a closed loop is
    capped by the requests in flight over their least latency, and by the rate at which ranks and
    stages can process prompts and tokens. Request latency grows accordingly.

    Args:
        queries: deployments.
        times: their times and rates.
        measured: per deployment, whether its times follow the user's own measurements on the
            device, in which case best estimates may use the full peaks; empty means none.

    Raises:
        UnknownBandwidth, UnknownPrecision: a device's spec sheet lacks a figure.
    """
    if not queries:
        return times
    loads = _Loads.of(queries)
    least = least_times(queries, _decoding(loads, times))
    shares = [ALL if is_measured else USUAL for is_measured in measured or [False] * len(queries)]
    share = _Shares(*np.array(shares).T)
    with np.errstate(all="ignore"):
        return replace(times, estimates=_bounded(times.estimates, loads, least, share))


def _decoding(loads: _Loads, times: TimeColumns) -> Column:
    """Mean batch of decoding sequences per rank by Little's law, at least one, (n,)."""
    nothing = np.full((len(times), 1), np.nan)
    rate, tpot = (times.estimates.get(name, nothing)[:, 0] for name in (RATES[0], "tpot_ms"))
    return np.fmax(1.0, rate * loads.after * tpot / 1e3 / loads.ranks)


def _bounded(
    times: Mapping[str, Matrix], loads: _Loads, least_s: LeastTimes, share: _Shares
) -> dict[str, Matrix]:
    """Times and rates of n deployments, kept within their least times, each (n, 3)."""
    tpot, ttft = 1e3 * least_s.tpot, 1e3 * least_s.ttft
    prompts, request = _work_ms(loads, least_s)
    latency = np.fmax(ttft + loads.after * tpot, loads.in_flight * request)
    full = loads.in_flight * np.maximum(prompts / share.arithmetic, request / share.work)
    full = np.where(np.isnan(full), 0.0, full)
    least = {"tpot_ms": tpot, "ttft_ms": ttft, "ttft_service_ms": ttft}
    usual = {name: column / share.arithmetic for name, column in least.items()}
    usual["tpot_ms"] = tpot / share.bandwidth
    least["request_latency_ms"] = usual["request_latency_ms"] = latency
    rate = np.where(np.isnan(loads.in_flight), np.inf, 1e3 * loads.in_flight / latency)
    tokens = rate * loads.output
    most = dict(zip(RATES, (rate, tokens, tokens / loads.devices), strict=True))
    bounds = {name: (least.get(name, 0.0), most.get(name, np.inf)) for name in times}
    estimates = {
        name: _moved(column, np.maximum(column[:, 0], usual.get(name, 0.0)), *bounds[name])
        for name, column in times.items()
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
        narrowed = _of_latency(_moved(times[name], value, *bounds[name]), whole)
        found[name] = np.where(closed, narrowed, estimates[name])
    known = ~np.isnan(late_ms)[:, None]
    return estimates | {n: np.where(known, column, estimates[n]) for n, column in found.items()}


def _work_ms(loads: _Loads, least_s: LeastTimes) -> tuple[Column, Column]:
    """Least time that all devices together need per prompt and per request, (n,), ms."""
    prompts = 1e3 * least_s.prompt / loads.prompts
    tokens = loads.after * (1e3 * least_s.token) / loads.decoded
    return prompts, np.maximum(prompts, tokens + np.where(loads.apart, 0.0, prompts))


def burst_within_sheet(
    query: Query, count: int, means: Mapping[str, Estimate]
) -> dict[str, Estimate]:
    """Mean times and rates of a finite number of requests, within what the spec sheet allows.

    The k-th first token comes after the least work of k prompts, the k-th answer after that of k
    requests.

    Args:
        query: the deployment; its requests arrive at its load's rate, otherwise at once.
        count: number of requests.
        means: metric -> mean over the requests.

    Raises:
        UnknownBandwidth, UnknownPrecision: the device's spec sheet lacks a figure.
    """
    loads, least = _Loads.of([query]), least_times([query], np.ones(1))
    first, each = 1e3 * least.ttft, 1e3 * least.tpot
    alone, number = first + loads.after * each, np.arange(1.0, count + 1.0)
    arrival = 1e3 * (number - 1.0) / (query.deployment.load.requests_per_s or np.inf)
    ends = [number * work for work in _work_ms(loads, least)]
    span = np.maximum(ends[1], arrival + alone)[-1:]
    times = {
        "ttft_ms": np.maximum(ends[0] - arrival, first),
        "tpot_ms": each,
        "request_latency_ms": np.maximum(ends[1] - arrival, alone),
    }
    rate = 1e3 * count / span
    most = dict(
        zip(RATES, (rate, rate * loads.output, rate * loads.output / loads.devices), strict=True)
    )
    found = dict(means)
    for bounds, bounded in ((times, _at_least), (most, _at_most)):
        for name in bounds.keys() & means.keys():
            found[name] = bounded(means[name], Estimate(*(float(bounds[name].mean()),) * 3))
    return found


def _sum(whole: Matrix, first: Matrix, each: Matrix, number: Column) -> Matrix:
    """Request latency with an interval no wider than the sum of its parts' ends, (n, 3)."""
    least, most = (first + number[:, None] * each)[:, 1:].T
    return _narrowed(whole, least, most)


def _rest(first: Matrix, whole: Matrix, tokens_ms: Column) -> Matrix:
    """Time to first token of a queued request: its interval is that of the latency less tokens."""
    least, most = (whole - tokens_ms[:, None])[:, 1:].T
    return _narrowed(first, least, most)


def _of_latency(rate: Matrix, latency: Matrix) -> Matrix:
    """The rate of a closed loop with an interval no wider than that of the request latency."""
    value, low, high = latency.T
    down, up = (value / np.where(end == 0.0, 1.0, end) for end in (high, low))
    return _narrowed(rate, rate[:, 0] * down, rate[:, 0] * up)


def _narrowed(estimates: Matrix, least: Column, most: Column) -> Matrix:
    """Estimates with intervals narrowed to the given ends but still containing the value, (n, 3).

    Estimates without an interval or with an unknown end are unchanged.
    """
    value, low, high = estimates.T
    ends = np.minimum(np.maximum(low, least), value), np.maximum(np.minimum(high, most), value)
    known = ~np.isnan(ends[0] + ends[1])[:, None]
    return np.where(known, np.array([value, *ends]).T, estimates)


def _moved(estimates: Matrix, value: Column, least: Bound, most: Bound) -> Matrix:
    """Estimates moved to new values with the same relative intervals, clipped to bounds."""
    value = np.minimum(np.maximum(value, least), most)
    ratio = np.where(estimates[:, 0] > 0.0, value / estimates[:, 0], 1.0)
    low, high = (np.minimum(np.maximum(ratio * end, least), most) for end in estimates[:, 1:].T)
    return np.array([value, low, high]).T


def _at_once(pool: Pool) -> int:
    """Requests that all ranks and stages of a pool process at once."""
    split = pool.parallelism
    return pool.workers * split.attention_data * split.pipeline


def parts_within_wholes(time: Prediction, output_tokens: float) -> Prediction:
    """The times, with no part of a time longer than the whole, nor its interval's ends.

    Measurements exist of the time to first token, so it bounds its service part from above and the
    request latency from below. A request with one output token takes as long as that token, so both
    get the tighter interval.

    Args:
        time: times of a deployment.
        output_tokens: output tokens of a request.
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
    """The longer of two estimates of the same time, with the tighter interval of the two."""
    longer = _at_least(whole, first)
    if None in (first.low, first.high, whole.low, whole.high):
        return longer
    high = min(first.high or 0.0, whole.high or 0.0)
    return replace(longer, high=max(high, longer.value))


def _at_most(part: Estimate, whole: Estimate) -> Estimate:
    """A part of a time, whose value and ends are capped by those of the whole."""
    if None in (part.low, part.high, whole.low, whole.high):
        return replace(part, value=min(part.value, whole.value))
    low, high = min(part.low or 0.0, whole.low or 0.0), min(part.high or 0.0, whole.high or 0.0)
    value = min(part.value, whole.value)
    return replace(part, value=value, low=low, high=max(high, value))


def _at_least(whole: Estimate, part: Estimate) -> Estimate:
    """A time, whose value and ends are raised to those of its part where these are longer."""
    if None in (part.low, part.high, whole.low, whole.high):
        return replace(whole, value=max(part.value, whole.value))
    low, high = max(part.low or 0.0, whole.low or 0.0), max(part.high or 0.0, whole.high or 0.0)
    value = max(part.value, whole.value)
    return replace(whole, value=value, low=min(low, value), high=high)
