"""Requests that arrive at a rate of their own: capacity of a deployment, and its times below it.

The times of closed loops with 1 request in flight to as many as have a place are a curve. Its
greatest rate is the capacity. Requests that arrive at a rate of their own take as long as those of
the closed loop that answers as many a second.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import ceil, exp, log, sqrt
from statistics import NormalDist
from typing import Final, NamedTuple, Self

import numpy as np

from forerun.data.columns import Column
from forerun.data.level import HALF_WIDTH
from forerun.data.query import Query
from forerun.features.llm_serving.engine_settings import (
    Limits,
    default_limits,
    sequences_in_memory,
)
from forerun.features.llm_serving.features import FEWEST_TOGETHER
from forerun.models.answers.deployments.derived import scaled
from forerun.models.limit import LATENCY, Limit
from forerun.models.llm_serving.iteration_table import TimeColumns
from forerun.models.llm_serving.latency import OVERLOADED
from forerun.models.prediction import Estimate, Prediction

RATE: Final = "requests_per_s"
RATES: Final = (RATE, "tokens_per_s", "tokens_per_s_per_device")
WITH_QUEUEING: Final = ("ttft_ms", "request_latency_ms")
"""Times that grow without end where requests arrive faster than they are answered."""
KEPT_UP: Final = 0.99
"""Share of the arrivals that are answered where a deployment keeps up with them."""
NEAR: Final = 0.9
"""Share of the capacity from which on times with queueing are mostly those of a queueing formula:
in four deployments of an 8B and a 70B model, the queue is 25 to 57 % of the time to the first token
there, and 72 to 88 % at 0.95."""
EXTRAPOLATED: Final = (
    "ttft_ms and request_latency_ms are extrapolated by a queueing formula that no measured run "
    "checks, and the queue in them doubles where half as much of the capacity is left: do not "
    "rely on them"
)
AT_CAPACITY: Final = "rates, power, price and all else are those at its capacity"
IF_IT_DOES: Final = "times are those of a deployment that does"
STEP: Final = 2.0
"""Ratio of neighbouring numbers of requests in flight at which closed loops are predicted: powers
of two are what most people ask and measure, and there both kinds of load have one time."""
CLOSER: Final = sqrt(2.0)
"""The same near the greatest rate, where it is not the one without a free place."""
POINTS: Final = 512
"""Numbers of requests in flight at which Little's law is solved."""
FEWEST: Final = 1e-3
"""The smallest of them on average."""
STANDARD: Final = NormalDist()


def fitting(query: Query) -> float:
    """Requests of mean length that fit the memory of all ranks and the engine's setting, at least
    one.
    """
    deployment, pool = query.deployment, query.deployment.pool
    sequences = Limits.of(deployment, query.device, pool.parallelism).sequences
    return max(1.0, sequences * _ranks(query))


def places(query: Query) -> float:
    """Requests that all ranks serve at a time, by the engine's setting and by the prompts that it
    admits; those beyond it wait.
    """
    deployment, device = query.deployment, query.device
    engine, split = deployment.engine, deployment.pool.parallelism
    most = float(engine.max_sequences or default_limits(engine, device)[1])
    room = sequences_in_memory(deployment, device, split, admitted=True)
    return max(1.0, (most if room is None else min(most, room)) * _ranks(query))


def _ranks(query: Query) -> int:
    pool = query.deployment.pool
    return pool.workers * pool.parallelism.attention_data


def beyond_memory(query: Query) -> bool:
    """Whether a closed loop has more requests in flight than `fitting`."""
    in_flight = query.deployment.load.concurrency
    return in_flight is not None and in_flight > fitting(query)


def closed_loops(query: Query, places: float) -> list[Query]:
    """The deployment with 1 request in flight, `STEP` times as many, ..., and with all places."""
    steps = STEP ** np.arange(int(np.ceil(log(places) / log(STEP))))
    return [in_closed_loop(query, float(number)) for number in (*steps, places)]


def in_closed_loop(query: Query, concurrency: float) -> Query:
    """The deployment with a constant number of requests in flight."""
    load = replace(query.deployment.load, requests_per_s=None, concurrency=concurrency)
    return replace(query, workload=replace(query.deployment, load=load))


def while_busy(in_flight: Column) -> Column:
    """Mean number of requests in flight while there is any, of one with a Poisson distribution."""
    return np.asarray(in_flight / -np.expm1(-in_flight))


@dataclass(frozen=True)
class LoadCurve:
    """A deployment in closed loops of g numbers of requests in flight.

    Attributes:
        in_flight: the numbers, which rise, (g,).
        times: times and rates of each, which the device may not allow.
        tokens_after: tokens after the first.
    """

    in_flight: Column
    times: TimeColumns
    tokens_after: float

    @classmethod
    def of(cls, queries: Sequence[Query], times: TimeColumns) -> Self:
        """The curve of the deployments of `closed_loops` and their times."""
        loads = [query.deployment.load for query in queries]
        in_flight = np.array([load.concurrency for load in loads], dtype=np.float64)
        return cls(in_flight, times, max(loads[0].output_tokens - 1.0, 0.0))

    @property
    def best(self) -> int:
        """Position of the closed loop with the greatest rate."""
        return int(np.argmax(self._values(RATE)))

    def closer(self, loops: Sequence[Query]) -> list[Query]:
        """Closed loops between the fastest and its neighbours; none where no place is free.

        Args:
            loops: the closed loops of the curve.
        """
        best = self.best
        if best == len(loops) - 1:
            return []
        ends = self.in_flight[[max(best - 1, 0), best, best + 1]].tolist()
        numbers = [
            low * CLOSER**step
            for low, high in pairwise(ends)
            for step in range(1, int(np.ceil(log(high / low) / log(CLOSER) - 1e-9)))
        ]
        return [in_closed_loop(loops[best], number) for number in numbers]

    def at_arrivals(self, arriving: Prediction, capacity: Estimate) -> Prediction:
        """Times of requests that arrive at random, at a rate below the upper end of the capacity.

        A token takes as long as in the closed loop that answers as many requests a second. The
        first waits for other prompts, as the prediction given says, and for a place, as in
        deployments that keep up (`_Capacities`).

        Args:
            arriving: times by the predictor, whose limits, rates and queue of prompts are kept.
            capacity: the greatest rate that can be answered, requests a second.
        """
        estimates = arriving.estimates
        rate = estimates[RATE].value
        likely, most, least = _Capacities.of(rate, capacity)
        number = self._in_flight_at(min(rate, self._kept_by_most(capacity)))
        served, first = (self._at(name, number) for name in ("ttft_service_ms", "ttft_ms"))
        each = self._each(rate, self._at("tpot_ms", number))
        prompts = estimates["ttft_ms"].value - estimates["ttft_service_ms"].value
        queues = [self._queue_ms(rate, own) for own in (likely, most, least)]
        first = _behind(_with_value(first, served.value + prompts), queues)
        tokens = scaled(each, self.tokens_after)
        changed = {
            "tpot_ms": each,
            "ttft_service_ms": served,
            "ttft_ms": first,
            "request_latency_ms": _behind(first, (tokens.value, tokens.low, tokens.high)),
        }
        limits = tuple(limit for limit in arriving.limits if limit != OVERLOADED)
        return replace(arriving, estimates={**estimates, **changed}, limits=limits)

    @staticmethod
    def _kept_by_most(capacity: Estimate) -> float:
        """The rate that deployments of this capacity keep up with at half of their times.

        Up to `NEAR` of the capacity, requests that arrive and those of the closed loop of the same
        rate have one time per token, however uncertain the capacity is.
        """
        own = capacity.value
        return max(NEAR * own, own**2 / _Capacities.of(own, capacity).likely)

    def _each(self, rate: float, own: Estimate) -> Estimate:
        """The time for each token, whose ends are those of slower and of faster deployments.

        Where tokens take longer, more requests are in flight at the same rate, and tokens longer
        again.
        """
        if own.low is None or own.high is None:
            return own
        low, high = (
            factor
            * float(self._interpolated("tpot_ms", np.array([self._in_flight_at(rate * factor)]))[0])
            for factor in (own.low / own.value, own.high / own.value)
        )
        return replace(own, low=low, high=high)

    def _in_flight_at(self, rate: float) -> float:
        """Requests in flight while there are any, where so many arrive a second (Little's law)."""
        return float(np.interp(rate, *self._little))

    @cached_property
    def _little(self) -> tuple[Column, Column]:
        """Rates that rise from 0, and the requests in flight while there are any, (POINTS + 1,)."""
        on_average = np.geomspace(FEWEST, self.in_flight[-1], POINTS)
        busy = while_busy(on_average)
        rates = np.maximum.accumulate(1e3 * on_average / self._latency_ms(busy))
        below = slice(int(np.argmax(rates)) + 1)
        return np.append(0.0, rates[below]), np.append(1.0, busy[below])

    def _queue_ms(self, rate: float, capacity: float) -> float:
        """Mean waiting for a place, in a queue of as many servers as there are places.

        Sakasegawa's approximation of M/M/m: it is without bound as the rate nears the capacity.
        """
        busy = rate / capacity
        power = sqrt(2.0 * (self.in_flight[-1] + 1.0)) - 1.0
        return 1e3 * float(busy**power / max(1.0 - busy, 1e-9) / capacity)

    def _latency_ms(self, numbers: Column) -> Column:
        """Time of a request of closed loops, at numbers in flight, (n,)."""
        each, first = (self._interpolated(name, numbers) for name in ("tpot_ms", "ttft_ms"))
        return first + self.tokens_after * each

    def _at(self, name: str, number: float) -> Estimate:
        """A time at a number of requests in flight, with the interval's ratios between there."""
        value = float(self._interpolated(name, np.array([number]))[0])
        middle, low, high = self.times.estimates[name].T
        if not (low > 0.0).all():
            return Estimate(value)
        at, logs = log(number), np.log(self.in_flight)
        down, up = (float(np.interp(at, logs, np.log(end / middle))) for end in (low, high))
        coverage = float(self.times.coverage[name][0])
        return Estimate(value, value * exp(down), value * exp(up), coverage)

    def _interpolated(self, name: str, numbers: Column) -> Column:
        """A time that does not fall with the number in flight, at n numbers, (n,).

        It is nearly linear in the number; up to `FEWEST_TOGETHER` its logarithm is.
        """
        values = np.maximum.accumulate(self._values(name))
        few = np.exp(np.interp(numbers, self.in_flight, np.log(values)))
        many = np.interp(numbers, self.in_flight, values)
        return np.where(numbers < FEWEST_TOGETHER, few, many)

    def _values(self, name: str) -> Column:
        return self.times.estimates[name][:, 0]


def _with_value(own: Estimate, value: float) -> Estimate:
    """An estimate with another value, and an interval of the same ratios to it."""
    low, high = (None if end is None else value * end / own.value for end in (own.low, own.high))
    return replace(own, value=value, low=low, high=high)


def _behind(own: Estimate, before_ms: Sequence[float | None]) -> Estimate:
    """A time after another one.

    Args:
        own: the time alone.
        before_ms: best estimate of the other, and the ends of its interval.
    """
    likely, low, high = before_ms
    assert likely is not None
    if own.low is None or own.high is None or low is None or high is None:
        return Estimate(own.value + likely)
    return Estimate(own.value + likely, own.low + low, own.high + high, own.coverage)


class _Capacities(NamedTuple):
    """Capacity of those deployments that keep up with a rate of arrivals, requests a second.

    The logarithm of a capacity has a normal distribution on either side of its best estimate. Of
    this, only the part above the rate keeps up.

    Attributes:
        likely: its median.
        most, least: ends of its 90 % interval.
    """

    likely: float
    most: float
    least: float

    @classmethod
    def of(cls, rate: float, capacity: Estimate) -> Self:
        """Those of a capacity, whose upper end is above the rate."""
        value, low, high = capacity.value, capacity.low, capacity.high
        if low is None or high is None or not low < value < high:
            return cls(value, value, value)
        below, above = log(value / low) / HALF_WIDTH, log(high / value) / HALF_WIDTH
        own = log(rate / value)
        behind = STANDARD.cdf(own / (below if own < 0.0 else above))

        def at(share: float) -> float:
            deviate = STANDARD.inv_cdf(behind + share * (1.0 - behind))
            return value * exp(deviate * (below if deviate < 0.0 else above))

        return cls(at(0.5), at(0.95), at(0.05))


def kept_up(query: Query, answered: float | None, capacity: Estimate | None) -> bool:
    """Whether requests that arrive at a rate of their own are answered as they arrive.

    Args:
        query: the deployment.
        answered: rate at which it answers requests, requests a second; None where not known.
        capacity: the largest rate of arrivals that it keeps up with; None where it is not known.
    """
    arriving = query.deployment.load.requests_per_s
    if arriving is None or answered is None or answered <= KEPT_UP * arriving:
        return False
    return capacity is None or not beyond(arriving, capacity)


def beyond(arriving: float, capacity: Estimate) -> bool:
    """Whether so many requests a second arrive that the queue grows without end.

    That is said where even the upper end of the capacity, or its value without an interval, is
    reached.
    """
    return arriving >= (capacity.value if capacity.high is None else capacity.high)


def as_served(query: Query) -> Query:
    """A closed loop with a request in flight for each place at most."""
    in_flight = query.deployment.load.concurrency
    assert in_flight is not None
    return in_closed_loop(query, min(in_flight, places(query)))


def with_waiting(query: Query, time: Prediction) -> Prediction:
    """The times of a closed loop with more requests in flight than fit the memory.

    Those without a place wait for their turn, so that the rate and the time per token stay.

    Args:
        query: the deployment with all requests in flight.
        time: times and rates of `as_served`.
    """
    in_flight, rate = query.deployment.load.concurrency, time.estimates[RATE]
    assert in_flight is not None
    expected, most = fitting(query), places(query)
    waiting = max(0.0, in_flight - most)
    line = f"{in_flight:,.0f} requests are in flight, and {expected:,.0f} of mean length fit"
    if waiting:
        line += f": {waiting:,.0f} have no place and wait; rates are those of a full deployment"
    later = {
        name: _later(time.estimates[name], waiting, rate)
        for name in WITH_QUEUEING
        if name in time.estimates
    }
    return replace(
        time,
        estimates={**time.estimates, **later},
        in_domain=False,
        limits=(Limit(line), *time.limits),
    )


def replicas(query: Query, capacity: Estimate | None) -> int | None:
    """Number of deployments like this one that together keep up with the arrivals.

    The requests are divided evenly among them, and each keeps up with those that arrive at the
    lower end of its capacity, or at its value without an interval.

    Args:
        query: the deployment, with the rate of all arrivals.
        capacity: the largest rate of arrivals that one keeps up with; None where it is not known.

    Returns:
        None without a rate of arrivals or a capacity.
    """
    arriving = query.deployment.load.requests_per_s
    if arriving is None or capacity is None:
        return None
    return ceil(arriving / (capacity.value if capacity.low is None else capacity.low))


def _later(own: Estimate, waiting: float, capacity: Estimate) -> Estimate:
    """A time, ms, and that in which so many requests are answered at the rate of the capacity."""
    value = own.value + 1e3 * waiting / capacity.value
    if own.low is None or own.high is None or capacity.low is None or capacity.high is None:
        return Estimate(value)
    low, high = own.low + 1e3 * waiting / capacity.high, own.high + 1e3 * waiting / capacity.low
    return Estimate(value, low, high, own.coverage)


def within_reach(query: Query, time: Prediction, capacity: Estimate | None) -> Prediction:
    """The times and rates of a deployment that may answer fewer requests than arrive.

    Where more arrive than the upper end of the capacity, times with queueing are withheld, which
    grow for as long as requests arrive. Where more arrive than its lower end, a limit says that it
    may not keep up. Rates are at most the capacity. From `NEAR` of the capacity on, a note says
    that times with queueing are extrapolated.

    Args:
        query: the deployment.
        time: its times.
        capacity: the largest rate of arrivals that it keeps up with; None where it is not known.
    """
    arriving = query.deployment.load.requests_per_s
    if arriving is None or capacity is None:
        return time
    low = capacity.value if capacity.low is None else capacity.low
    if beyond(arriving, capacity):
        why = f"{_of_capacity(arriving, capacity)}: the queue grows without end"
        kept = {name: own for name, own in time.estimates.items() if name not in WITH_QUEUEING}
        withheld = {**time.withheld, **dict.fromkeys(WITH_QUEUEING, why)}
        limits = (Limit(f"{why}; {AT_CAPACITY}", severity="refusal"), *time.limits)
        return replace(time, estimates=kept, withheld=withheld, in_domain=False, limits=limits)
    near = _near(arriving / capacity.value)
    if arriving <= low:
        return replace(time, limits=(*time.limits, *near))
    limit = Limit(f"{_of_capacity(arriving, capacity)}: it may not keep up; {IF_IT_DOES}")
    found = {
        name: _answered(own, arriving, capacity) if name in RATES else own
        for name, own in time.estimates.items()
    }
    limits = (limit, *near, *time.limits)
    return replace(time, estimates=found, in_domain=False, limits=limits)


def _answered(own: Estimate, arriving: float, capacity: Estimate) -> Estimate:
    """A rate of all requests that arrive, at most as large as the capacity."""
    ends = (capacity.value, capacity.low, capacity.high)
    value, low, high = (
        None if end is None else own.value * min(1.0, end / arriving) for end in ends
    )
    return replace(own, value=value or 0.0, low=low, high=high)


def _of_capacity(arriving: float, capacity: Estimate) -> str:
    own = rate_range(capacity.value, capacity.low, capacity.high)
    return f"{rate_figure(arriving)} requests/s arrive, and {own} can be answered"


def _near(share: float) -> tuple[Limit, ...]:
    """The note about times with queueing where so large a share of the capacity arrives."""
    if share < NEAR:
        return ()
    own = f"requests arrive at {100.0 * share:.4g} % of the capacity"
    return (Limit(f"{own}: from {100.0 * NEAR:.0f} % on, {EXTRAPOLATED}", LATENCY, "note"),)


def rate_range(rate: float, low: float | None, high: float | None) -> str:
    """A rate, and its interval where it has one, in the digits of `rate_figure`."""
    if low is None or high is None:
        return rate_figure(rate)
    return f"{rate_figure(rate)} ({rate_figure(low)} to {rate_figure(high)})"


def rate_figure(rate: float) -> str:
    """A rate in three digits, or all of its whole ones."""
    return f"{rate:,.0f}" if rate >= 100.0 else f"{rate:.3g}"
