"""Predicts a deployment's times under load: a closed loop, or requests arriving at a rate.

Closed loops with 1, 2, 4, ... requests in flight, up to the number of slots, form a curve along
which neither times nor the rate decrease. Other closed loops are interpolated on it. Requests
beyond the slots queue at the rate of the last loop, which is the capacity. Requests arriving at a
given rate take as long as those of the closed loop with that rate.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, exp, isnan, log, sqrt
from statistics import NormalDist
from typing import Final, NamedTuple, Self

import numpy as np

from forerun.data.columns import Column, Matrix
from forerun.data.language_models.deployment import Engine
from forerun.data.level import HALF_WIDTH, USUAL
from forerun.data.query import Query
from forerun.features.llm_serving.comparable import in_step
from forerun.features.llm_serving.engine_settings import Limits
from forerun.models.answers.deployments.derived import scaled
from forerun.models.answers.interval_level import at_level
from forerun.models.limit import LATENCY, Limit
from forerun.models.llm_serving.iteration_table import TimeColumns
from forerun.models.llm_serving.latency import OVERLOADED
from forerun.models.llm_serving.littles_law import Loads, metrics_of
from forerun.models.prediction import Estimate, Prediction

RATE: Final = "requests_per_s"
RATES: Final = (RATE, "tokens_per_s", "tokens_per_s_per_device")
TIMES: Final = ("tpot_ms", "ttft_ms", "ttft_service_ms")
WITH_QUEUEING: Final = ("ttft_ms", "request_latency_ms")
"""Times that grow without bound where requests arrive faster than they are answered."""
KEPT_UP: Final = 0.99
"""Share of the arrivals answered from which a deployment counts as sustaining them."""
NEAR: Final = 0.9
"""Share of the capacity above which times with queueing come mostly from a queueing formula: in
four deployments of an 8B and a 70B model, the queueing delay is 25 to 57 % of the time to first
token there, and 72 to 88 % at 0.95."""
EXTRAPOLATED: Final = (
    "ttft_ms and request_latency_ms come from a queueing formula that no measured run "
    "checks; queueing time doubles when half as much capacity is left: do not rely on them"
)
AT_CAPACITY: Final = "rates, power and price are those at its capacity"
OTHER_CASE: Final = "times with queueing assume the other case"
STEP: Final = 2.0
"""Ratio of successive concurrencies at which closed loops are predicted. Most people ask for and
measure powers of two, where the curve equals the direct prediction."""
POINTS: Final = 512
"""Concurrencies at which Little's law is solved."""
FEWEST: Final = 1e-3
"""The smallest mean concurrency among them."""
UNEVEN: Final = 0.01
"""Variation of output lengths that makes requests start and end independently of each other."""
STANDARD: Final = NormalDist()
MOST_BEHIND: Final = 0.95
"""Probability of overload at the upper end of the capacity; higher ones are not quoted."""
LATE: Final = 3.0
"""Exponent applied to a share of this probability when slowing tokens down: most deployments that
users ask about sustain their load."""


def places(query: Query) -> float:
    """Slots: requests that settings and memory admit on all ranks at once; others queue."""
    deployment, pool = query.deployment, query.deployment.pool
    ranks = pool.workers * pool.parallelism.attention_data
    return Limits.of(deployment, query.device, pool.parallelism).admitted * ranks


def with_engine(query: Query, engine: Engine) -> Query:
    """The deployment with another engine."""
    return replace(query, workload=replace(query.deployment, engine=engine))


def with_usual_places(query: Query) -> Query:
    """The deployment with its engine's default sequence limit and memory share, unless its own
    settings give it more slots.

    Times at a given concurrency do not depend on slots that are not filled.
    """
    engine = query.deployment.engine
    usual = replace(engine, max_sequences=None, memory_share=Engine().memory_share)
    found = query if engine == usual else with_engine(query, usual)
    return found if places(found) >= places(query) else query


def closed_loops(query: Query) -> list[Query]:
    """The deployment with 1, `STEP`, `STEP`**2, ... requests in flight, and with all slots."""
    every = places(query)
    steps = STEP ** np.arange(int(np.ceil(log(every) / log(STEP))))
    return [in_closed_loop(query, float(number)) for number in (*steps, every)]


def in_closed_loop(query: Query, concurrency: float) -> Query:
    """The deployment with a constant number of requests in flight.

    If it stands in for random arrivals, its requests do not stay in lockstep.
    """
    load = replace(query.deployment.load, requests_per_s=None, concurrency=concurrency)
    loop = replace(query.deployment, load=load)
    if in_step(loop) and not in_step(query.deployment):
        loop = replace(loop, load=replace(load, output_variation=UNEVEN))
    return replace(query, workload=loop)


def while_busy(in_flight: Column) -> Column:
    """Mean of a Poisson-distributed number of requests in flight, given that it is not zero."""
    return np.asarray(in_flight / -np.expm1(-in_flight))


@dataclass(frozen=True)
class LoadCurve:
    """Times of one deployment in closed loops at g concurrencies.

    Attributes:
        in_flight: the concurrencies in increasing order, (g,).
        times: times at each. Neither the times nor the ends of their intervals decrease with
            concurrency, nor does the rate. Intervals are at least as wide as the calibration strata
            require.
        tokens_after: output tokens after the first.
    """

    in_flight: Column
    times: TimeColumns
    tokens_after: float

    @classmethod
    def of(cls, queries: Sequence[Query], times: TimeColumns) -> Self:
        """The curve of the deployments from `closed_loops` and their times."""
        loads = [query.deployment.load for query in queries]
        in_flight = np.array([load.concurrency for load in loads], dtype=np.float64)
        after = max(loads[0].output_tokens - 1.0, 0.0)
        found = np.stack([times.estimates[name] for name in TIMES])
        factors = (
            _made_monotone(found[..., 0], in_flight, np.array([after, 1.0, 0.0])) / found[..., 0]
        )
        value, low, high = np.moveaxis(factors[..., None] * found, 2, 0)
        low = np.minimum.accumulate(low[:, ::-1], axis=1)[:, ::-1]
        ends = np.stack([value, low, np.maximum.accumulate(high, axis=1)], axis=2)
        estimates = {**times.estimates, **dict(zip(TIMES, ends, strict=True))}
        return cls(in_flight, replace(times, estimates=estimates), after)

    def up_to(self, every: float) -> Self:
        """The curve truncated at a number of slots."""
        if every >= self.in_flight[-1]:
            return self
        in_flight = np.append(self.in_flight[self.in_flight < every], every)
        estimates = {name: self._ends(name, in_flight) for name in TIMES}
        return replace(self, in_flight=in_flight, times=replace(self.times, estimates=estimates))

    def closed(self, queries: Sequence[Query], limits: Sequence[tuple[Limit, ...]]) -> TimeColumns:
        """Times and rates of closed loops of the deployment.

        Requests beyond the last concurrency queue: the rate and the time per token stay constant.
        The lower end of a rate is at least that at lower concurrencies.

        Args:
            queries: n closed loops.
            limits: the limits of each.
        """
        loads, last = Loads.of(queries), self.in_flight[-1:]
        tpot, ttft, served = (1e-3 * self._ends(name, loads.in_flight) for name in TIMES)
        each, first = (1e-3 * self._ends(name, last) for name in ("tpot_ms", "ttft_ms"))
        waiting = np.maximum(loads.in_flight / last - 1.0, 0.0)[:, None]
        ttft = ttft + waiting * (first + self.tokens_after * each)
        ends = [
            metrics_of(loads, *parts)
            for parts in zip((served / ttft).T, tpot.T, ttft.T, strict=True)
        ]
        orders = {name: (0, 2, 1) if name in RATES else (0, 1, 2) for name in ends[0]}
        estimates = {
            name: np.column_stack([ends[end][name] for end in order])
            for name, order in orders.items()
        }
        fewer = np.searchsorted(self.in_flight, loads.in_flight, side="right")
        least = np.append(0.0, self._least_rates)[fewer]
        raised = np.fmax(least / estimates[RATE][:, 1], 1.0)
        for name in RATES:
            estimates[name][:, 1] *= raised
        coverage = {name: np.full(len(queries), self.times.coverage[name][0]) for name in estimates}
        return TimeColumns(estimates, coverage, limits)

    @cached_property
    def _least_rates(self) -> Column:
        """Lower end of the rate, non-decreasing with concurrency, requests per second, (g,)."""
        each, first = (self.times.estimates[name][:, 2] for name in ("tpot_ms", "ttft_ms"))
        rates = 1e3 * self.in_flight / (first + self.tokens_after * each)
        return np.asarray(np.maximum.accumulate(rates))

    def at_arrivals(self, arriving: Prediction, capacity: Estimate) -> Prediction:
        """Times of requests that arrive at random, at a rate below the upper end of the capacity.

        The time per token is that of the closed loop with the same throughput. Above
        `_sustainable_rate` it grows with the probability of overload, up to that of a full
        deployment at the upper end of the capacity. The time to first token adds the delay behind
        other prompts, taken from the given prediction, and the wait for a slot, at the capacity of
        deployments that sustain the rate (`_Capacities`).

        Args:
            arriving: the predictor's times, whose limits, prompt queueing and rates up to the
                capacity are kept.
            capacity: the largest rate that can be answered, requests per second.
        """
        estimates = arriving.estimates
        rate = estimates[RATE].value
        level = 100.0 * self.times.coverage["ttft_ms"][0]
        likely, most, least = _Capacities.of(rate, capacity, level)
        kept = self._sustainable_rate(capacity)
        number = float(np.interp(min(rate, kept), *self._little))
        found = {name: self._at(name, number) for name in ("tpot_ms", "ttft_service_ms")}
        found["tpot_ms"] = self._token_time(rate, found["tpot_ms"])
        if rate > kept:
            start, end = (behind(at, capacity) for at in (kept, rate))
            share = ((end - start) / (MOST_BEHIND - start)) ** LATE
            found = {
                name: self._toward_full(name, estimate, share) for name, estimate in found.items()
            }
        each, served = found.values()
        prompts = estimates["ttft_ms"].value - estimates["ttft_service_ms"].value
        first = _delayed(served, (prompts, *(prompts * self._widths("ttft_ms", number))))
        first = _delayed(first, [self._queue_ms(rate, at) for at in (likely, most, least)])
        tokens = scaled(each, self.tokens_after)
        answered = min(1.0, capacity.value / rate)
        changed = {
            **{name: scaled(estimates[name], answered) for name in RATES if name in estimates},
            "tpot_ms": each,
            "ttft_service_ms": served,
            "ttft_ms": first,
            "request_latency_ms": _delayed(first, (tokens.value, tokens.low, tokens.high)),
        }
        limits = tuple(limit for limit in arriving.limits if limit != OVERLOADED)
        return replace(arriving, estimates={**estimates, **changed}, limits=limits)

    @staticmethod
    def _sustainable_rate(capacity: Estimate) -> float:
        """The rate that half of the deployments with this estimated capacity sustain.

        Up to `NEAR` of the capacity, random arrivals and the closed loop of the same rate have the
        same time per token, however uncertain the capacity is.
        """
        value = capacity.value
        return max(NEAR * value, value**2 / _Capacities.of(value, capacity).likely)

    def _toward_full(self, name: str, estimate: Estimate, share: float) -> Estimate:
        """A time moved by a share toward that of a full deployment; its lower end stays."""
        full = self._at(name, float(self.in_flight[-1]))
        high = None
        if estimate.high is not None and full.high is not None:
            high = estimate.high ** (1.0 - share) * full.high**share
        return replace(
            estimate, value=estimate.value ** (1.0 - share) * full.value**share, high=high
        )

    def _token_time(self, rate: float, estimate: Estimate) -> Estimate:
        """The time per token at an arrival rate, with the ends of `_token_ends`."""
        if estimate.low is None:
            return estimate
        rates, *ends = self._token_ends
        low, high = (float(np.interp(rate, rates, end)) for end in ends)
        return replace(estimate, low=min(low, estimate.value), high=max(high, estimate.value))

    @cached_property
    def _token_ends(self) -> tuple[Column, Column, Column]:
        """Rates, and the non-decreasing ends of the time per token along them, (POINTS + 1,).

        The ends stand for slower and faster deployments. Slower tokens keep more requests in flight
        at the same rate, which slows tokens further, up to the times of a full deployment.
        """
        rates, numbers = self._little
        value, low, high = self._ends("tpot_ms", numbers).T
        low, high = (
            factor * self._interpolated("tpot_ms", np.interp(rates * factor, rates, numbers))
            for factor in (low / value, high / value)
        )
        least, most = self.times.estimates["tpot_ms"][-1, 1:]
        low = np.minimum(np.minimum.accumulate(low[::-1])[::-1], least)
        return rates, low, np.minimum(np.maximum.accumulate(high), most)

    @cached_property
    def _little(self) -> tuple[Column, Column]:
        """Increasing rates from 0, and the mean concurrency while busy at each, (POINTS + 1,).

        By Little's law, the rate is the mean number in flight over the time of a request.
        """
        on_average = np.geomspace(FEWEST, self.in_flight[-1], POINTS)
        busy = while_busy(on_average)
        rates = np.maximum.accumulate(1e3 * on_average / self._latency_ms(busy))
        below = slice(int(np.argmax(rates)) + 1)
        return np.append(0.0, rates[below]), np.append(1.0, busy[below])

    def _queue_ms(self, rate: float, capacity: float) -> float:
        """Mean wait for a slot in an M/M/m queue with one server per slot.

        Sakasegawa's approximation, which diverges as the rate approaches the capacity.
        """
        busy = rate / capacity
        power = sqrt(2.0 * (self.in_flight[-1] + 1.0)) - 1.0
        return 1e3 * float(busy**power / max(1.0 - busy, 1e-9) / capacity)

    def _latency_ms(self, numbers: Column) -> Column:
        """Request latency of closed loops at n concurrencies, (n,)."""
        each, first = (self._interpolated(name, numbers) for name in ("tpot_ms", "ttft_ms"))
        return first + self.tokens_after * each

    def _at(self, name: str, number: float) -> Estimate:
        """A time at one concurrency."""
        ((value, low, high),) = self._ends(name, np.array([number])).tolist()
        if isnan(low):
            return Estimate(value)
        return Estimate(value, low, high, float(self.times.coverage[name][0]))

    def _ends(self, name: str, numbers: Column) -> Matrix:
        """A time and the ends of its interval at n concurrencies, (n, 3).

        Values are interpolated linearly along the curve and constant beyond its end.
        """
        columns = self.times.estimates[name].T
        return np.array([np.interp(numbers, self.in_flight, column) for column in columns]).T

    def _widths(self, name: str, number: float) -> Column:
        """Ratios of the interval's ends to the time, which widen with concurrency, (2,)."""
        low, high = (self.times.estimates[name][:, 1:] / self.times.estimates[name][:, :1]).T
        risen = np.minimum.accumulate(low[::-1])[::-1], np.maximum.accumulate(high)
        return np.array([np.interp(number, self.in_flight, ratios) for ratios in risen])

    def _interpolated(self, name: str, numbers: Column) -> Column:
        """A time at n concurrencies, (n,)."""
        return np.interp(numbers, self.in_flight, self.times.estimates[name][:, 0])


def _made_monotone(found: Matrix, in_flight: Column, parts: Column) -> Matrix:
    """Times made non-decreasing in concurrency without letting the rate decrease, (times, g).

    Each is the geometric mean of the running maximum from below and the running minimum from above.
    Where the rate would fall, the increments of all times are scaled down.

    Args:
        found: (times, g) times of g closed loops.
        in_flight: (g,) their concurrencies in increasing order.
        parts: (times,) how often each time occurs in the latency of a request.
    """
    earlier = np.maximum.accumulate(found, axis=1)
    later = np.minimum.accumulate(found[:, ::-1], axis=1)[:, ::-1]
    risen: Matrix = np.sqrt(earlier * later)
    steps, more = np.diff(risen, axis=1), in_flight[1:] / in_flight[:-1] - 1.0
    for at, step in enumerate(steps.T):
        longest, longer = more[at] * (parts @ risen[:, at]), parts @ step
        risen[:, at + 1] = risen[:, at] + step * (longest / longer if longer > longest else 1.0)
    return risen


def _delayed(estimate: Estimate, before_ms: Sequence[float | None]) -> Estimate:
    """A time that starts after another one has passed.

    Args:
        estimate: the time without the delay.
        before_ms: best estimate of the delay, and the ends of its interval.
    """
    likely, low, high = before_ms
    assert likely is not None
    if estimate.low is None or estimate.high is None or low is None or high is None:
        return Estimate(estimate.value + likely)
    return Estimate(
        estimate.value + likely, estimate.low + low, estimate.high + high, estimate.coverage
    )


def _spread(capacity: Estimate) -> tuple[float, float]:
    """Standard deviations of the log-capacity below and above its best estimate.

    Either side is modelled as normal; both are 0 for a capacity without an interval.
    """
    value, low, high = capacity.value, capacity.low, capacity.high
    if low is None or high is None or not low < value < high:
        return 0.0, 0.0
    return log(value / low) / HALF_WIDTH, log(high / value) / HALF_WIDTH


def behind(rate: float, capacity: Estimate) -> float:
    """Probability that the arrival rate exceeds the uncertain capacity of a deployment."""
    log_ratio = log(rate / capacity.value)
    deviation = _spread(capacity)[log_ratio >= 0.0]
    return STANDARD.cdf(log_ratio / deviation) if deviation else float(log_ratio >= 0.0)


class _Capacities(NamedTuple):
    """Capacity of the deployments that sustain an arrival rate, requests per second.

    Attributes:
        likely: its median.
        most, least: ends of its interval.
    """

    likely: float
    most: float
    least: float

    @classmethod
    def of(cls, rate: float, capacity: Estimate, level: float = USUAL) -> Self:
        """The capacity given that it sustains a rate below its upper end; level in %."""
        below, above = _spread(capacity)
        if not below:
            return cls(*(capacity.value,) * 3)
        late = behind(rate, capacity)

        tail = 0.005 * (100.0 - level)

        def at(share: float) -> float:
            deviate = STANDARD.inv_cdf(late + share * (1.0 - late))
            return capacity.value * exp(deviate * (below if deviate < 0.0 else above))

        return cls(at(0.5), at(1.0 - tail), at(tail))


def kept_up(query: Query, answered: float | None, capacity: Estimate | None) -> bool:
    """Whether requests arriving at a given rate are answered as they arrive.

    Args:
        query: the deployment.
        answered: rate of answered requests, requests per second; None if unknown.
        capacity: the largest arrival rate that the deployment sustains; None if unknown.
    """
    arriving = query.deployment.load.requests_per_s
    if arriving is None or answered is None or answered <= KEPT_UP * arriving:
        return False
    return capacity is None or not beyond(arriving, capacity)


def beyond(arriving: float, capacity: Estimate) -> bool:
    """Whether the queue grows without bound at the best estimate of the capacity."""
    return arriving >= capacity.value


def as_served(query: Query, every: float) -> Query:
    """The query with a closed loop limited to the number of slots; other loads are unchanged."""
    in_flight = query.deployment.load.concurrency
    return query if in_flight is None or in_flight <= every else in_closed_loop(query, every)


def without_place(query: Query, every: float) -> tuple[Limit, ...]:
    """A limit if a closed loop has more requests in flight than slots."""
    in_flight = query.deployment.load.concurrency or 0.0
    if in_flight <= every:
        return ()
    line = f"{in_flight:,.0f} requests are in flight, and {every:,.0f} run at once"
    return (Limit(f"{line}: the others wait, and rates are those of a full deployment"),)


def replicas(query: Query, capacity: Estimate | None) -> int | None:
    """Number of such deployments that together sustain the arrivals.

    Requests are split evenly. Each replica is rated at the lower end of its capacity, or at the
    best estimate without an interval.

    Args:
        query: the deployment, with the total arrival rate.
        capacity: the largest arrival rate that one deployment sustains; None if unknown.

    Returns:
        None without an arrival rate or a capacity.
    """
    arriving = query.deployment.load.requests_per_s
    if arriving is None or capacity is None:
        return None
    return ceil(arriving / (capacity.value if capacity.low is None else capacity.low))


def within_reach(query: Query, time: Prediction, capacity: Estimate | None) -> Prediction:
    """The times and rates of a deployment that may answer fewer requests than arrive.

    From the best estimate of the capacity on, times with queueing are withheld: a growing queue has
    no steady state. From the lower end of the capacity on, a limit gives the probability of
    overload. Rates are capped at the arrivals and the capacity. From `NEAR` of the capacity on, a
    note says that times with queueing are extrapolated.

    Args:
        query: the deployment.
        time: its times.
        capacity: the largest arrival rate that it sustains; None if unknown.
    """
    arriving = query.deployment.load.requests_per_s
    if arriving is None or capacity is None:
        return time
    near, late = _near(arriving / capacity.value), beyond(arriving, capacity)
    held = at_level({RATE: capacity}, query)[RATE]
    if not late and arriving <= min(
        estimate.low or estimate.value for estimate in (capacity, held)
    ):
        return replace(time, limits=(*time.limits, *near))
    why = _overload(arriving, held, behind(arriving, capacity))
    withheld = dict.fromkeys(WITH_QUEUEING, why) if late else {}
    limit = Limit(f"{why}; {AT_CAPACITY}", severity="refusal")
    limits = (limit if late else Limit(f"{why}; {OTHER_CASE}"), *near, *time.limits)
    kept = {name: estimate for name, estimate in time.estimates.items() if name not in withheld}
    rates = [name for name in RATES if name in kept]
    kept |= {name: _answered(kept[name], time.estimates[RATE], arriving, held) for name in rates}
    withheld = {**time.withheld, **withheld}
    return replace(time, estimates=kept, withheld=withheld, in_domain=False, limits=limits)


def _answered(estimate: Estimate, of: Estimate, arriving: float, capacity: Estimate) -> Estimate:
    """A rate rescaled to the requests that arrive or, if fewer, can be answered."""
    ends = (capacity.value, capacity.low, capacity.high)
    value, low, high = (
        None if end is None else estimate.value / of.value * min(arriving, end) for end in ends
    )
    return replace(estimate, value=value or 0.0, low=low, high=high)


def _overload(arriving: float, capacity: Estimate, probability: float) -> str:
    """A sentence that more requests may arrive than can be answered."""
    capacity_text = rate_range(capacity.value, capacity.low, capacity.high)
    line = f"{rate_figure(arriving)} requests/s arrive, and {capacity_text} can be answered"
    unsure = f"with a probability of {100.0 * probability:.0f} % " * (probability < MOST_BEHIND)
    return f"{line}: {unsure}the queue grows without bound"


def _near(share: float) -> tuple[Limit, ...]:
    """The note that times with queueing are extrapolated at this share of the capacity."""
    if not NEAR <= share < 1.0:
        return ()
    line = f"requests arrive at {100.0 * share:.4g} % of the capacity"
    return (Limit(f"{line}: from {100.0 * NEAR:.0f} % on, {EXTRAPOLATED}", LATENCY, "note"),)


def rate_range(rate: float, low: float | None, high: float | None) -> str:
    """A rate with its interval if it has one, in the digits of `rate_figure`."""
    if low is None or high is None:
        return rate_figure(rate)
    return f"{rate_figure(rate)} ({rate_figure(low)} to {rate_figure(high)})"


def rate_figure(rate: float) -> str:
    """A rate in three significant digits, or all of its integer digits."""
    return f"{rate:,.0f}" if rate >= 100.0 else f"{rate:.3g}"
