"""Times of a deployment by its load: requests in flight, or requests that arrive at a rate.

The times of closed loops with 1, 2, 4, ... requests in flight, up to as many as have a place, are a
curve, along which neither times nor the rate fall. Any other closed loop is read from it. Requests
without a place wait for one, at the rate of the last loop, which is the capacity. Requests that
arrive at a rate of their own take as long as those of the closed loop of that rate.
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
AT_CAPACITY: Final = "rates, power and price are those at its capacity"
OTHER_CASE: Final = "times with queueing are those of the other case"
STEP: Final = 2.0
"""Ratio of neighbouring numbers of requests in flight at which closed loops are predicted: powers
of two are what most people ask and measure, and there both kinds of load have one time."""
POINTS: Final = 512
"""Numbers of requests in flight at which Little's law is solved."""
FEWEST: Final = 1e-3
"""The smallest of them on average."""
UNEVEN: Final = 0.01
"""Variation of the lengths of answers that start and end independently of each other."""
STANDARD: Final = NormalDist()
MOST_BEHIND: Final = 0.95
"""Probability of an overload at the upper end of the capacity, from which on none is stated."""
LATE: Final = 3.0
"""Power of a share of this probability by which tokens take longer: deployments that are asked
about are more often ones that keep up."""


def places(query: Query) -> float:
    """Requests that setting and memory admit to all ranks at a time; those beyond it wait."""
    deployment, pool = query.deployment, query.deployment.pool
    ranks = pool.workers * pool.parallelism.attention_data
    return Limits.of(deployment, query.device, pool.parallelism).admitted * ranks


def with_engine(query: Query, engine: Engine) -> Query:
    """The deployment with another engine."""
    return replace(query, workload=replace(query.deployment, engine=engine))


def with_usual_places(query: Query) -> Query:
    """The deployment with the limit of sequences and the share of memory that its engine takes
    where none are given, unless it has more places with its own.

    With as many requests in flight as have a place, it takes the same times.
    """
    own = query.deployment.engine
    usual = replace(own, max_sequences=None, memory_share=Engine().memory_share)
    found = query if own == usual else with_engine(query, usual)
    return found if places(found) >= places(query) else query


def closed_loops(query: Query) -> list[Query]:
    """The deployment with 1 request in flight, `STEP` times as many, ..., and with all places."""
    every = places(query)
    steps = STEP ** np.arange(int(np.ceil(log(every) / log(STEP))))
    return [in_closed_loop(query, float(number)) for number in (*steps, every)]


def in_closed_loop(query: Query, concurrency: float) -> Query:
    """The deployment with a constant number of requests in flight.

    Those that stand for requests which arrive do not stay in step.
    """
    load = replace(query.deployment.load, requests_per_s=None, concurrency=concurrency)
    loop = replace(query.deployment, load=load)
    if in_step(loop) and not in_step(query.deployment):
        loop = replace(loop, load=replace(load, output_variation=UNEVEN))
    return replace(query, workload=loop)


def while_busy(in_flight: Column) -> Column:
    """Mean number of requests in flight while there is any, of one with a Poisson distribution."""
    return np.asarray(in_flight / -np.expm1(-in_flight))


@dataclass(frozen=True)
class LoadCurve:
    """A deployment in closed loops of g numbers of requests in flight.

    Attributes:
        in_flight: the numbers, which rise, (g,).
        times: times of each; from one to the next, no time falls, nor an end of its interval, which
            is as wide as the strata of the calibration ask for at least; and no rate.
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
        after = max(loads[0].output_tokens - 1.0, 0.0)
        found = np.stack([times.estimates[name] for name in TIMES])
        factors = _risen(found[..., 0], in_flight, np.array([after, 1.0, 0.0])) / found[..., 0]
        value, low, high = np.moveaxis(factors[..., None] * found, 2, 0)
        low = np.minimum.accumulate(low[:, ::-1], axis=1)[:, ::-1]
        ends = np.stack([value, low, np.maximum.accumulate(high, axis=1)], axis=2)
        estimates = {**times.estimates, **dict(zip(TIMES, ends, strict=True))}
        return cls(in_flight, replace(times, estimates=estimates), after)

    def up_to(self, every: float) -> Self:
        """The part of the curve up to a number of places."""
        if every >= self.in_flight[-1]:
            return self
        in_flight = np.append(self.in_flight[self.in_flight < every], every)
        estimates = {name: self._ends(name, in_flight) for name in TIMES}
        return replace(self, in_flight=in_flight, times=replace(self.times, estimates=estimates))

    def closed(self, queries: Sequence[Query], limits: Sequence[tuple[Limit, ...]]) -> TimeColumns:
        """Times and rates of closed loops of the deployment.

        Requests beyond the last number wait for their turn: rate and time per token stay. The lower
        end of a rate is at least that of fewer requests in flight.

        Args:
            queries: n closed loops.
            limits: limits of each.
        """
        loads, last = Loads.of(queries), self.in_flight[-1:]
        tpot, ttft, served = (1e-3 * self._ends(name, loads.in_flight) for name in TIMES)
        each, first = (1e-3 * self._ends(name, last) for name in ("tpot_ms", "ttft_ms"))
        waiting = np.maximum(loads.in_flight / last - 1.0, 0.0)[:, None]
        ttft = ttft + waiting * (first + self.tokens_after * each)
        ends = [
            metrics_of(loads, *own) for own in zip((served / ttft).T, tpot.T, ttft.T, strict=True)
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
        """Lower end of the rate, no lower than that of fewer in flight, requests a second, (g,)."""
        each, first = (self.times.estimates[name][:, 2] for name in ("tpot_ms", "ttft_ms"))
        rates = 1e3 * self.in_flight / (first + self.tokens_after * each)
        return np.asarray(np.maximum.accumulate(rates))

    def at_arrivals(self, arriving: Prediction, capacity: Estimate) -> Prediction:
        """Times of requests that arrive at random, at a rate below the upper end of the capacity.

        A token takes as long as in the closed loop that answers as many requests a second. From
        `_kept_by_most` on, it takes longer with the probability of an overload, and at the upper
        end of the capacity as long as in a full deployment. The first waits for other prompts, as
        the prediction given says, and for a place, as in deployments that keep up (`_Capacities`).

        Args:
            arriving: times by the predictor, whose limits and queue of prompts are kept, and its
                rates up to the capacity.
            capacity: the greatest rate that can be answered, requests a second.
        """
        estimates = arriving.estimates
        rate = estimates[RATE].value
        level = 100.0 * self.times.coverage["ttft_ms"][0]
        likely, most, least = _Capacities.of(rate, capacity, level)
        kept = self._kept_by_most(capacity)
        number = float(np.interp(min(rate, kept), *self._little))
        found = {name: self._at(name, number) for name in ("tpot_ms", "ttft_service_ms")}
        found["tpot_ms"] = self._each(rate, found["tpot_ms"])
        if rate > kept:
            start, end = (behind(own, capacity) for own in (kept, rate))
            share = ((end - start) / (MOST_BEHIND - start)) ** LATE
            found = {name: self._fuller(name, own, share) for name, own in found.items()}
        each, served = found.values()
        prompts = estimates["ttft_ms"].value - estimates["ttft_service_ms"].value
        first = _behind(served, (prompts, *(prompts * self._widths("ttft_ms", number))))
        first = _behind(first, [self._queue_ms(rate, own) for own in (likely, most, least)])
        tokens = scaled(each, self.tokens_after)
        answered = min(1.0, capacity.value / rate)
        changed = {
            **{name: scaled(estimates[name], answered) for name in RATES if name in estimates},
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

    def _fuller(self, name: str, own: Estimate, share: float) -> Estimate:
        """A time on the way to that of a full deployment; its low end stays."""
        full = self._at(name, float(self.in_flight[-1]))
        high = None
        if own.high is not None and full.high is not None:
            high = own.high ** (1.0 - share) * full.high**share
        return replace(own, value=own.value ** (1.0 - share) * full.value**share, high=high)

    def _each(self, rate: float, own: Estimate) -> Estimate:
        """The time for each token at a rate of arrivals, with the ends of `_token_ends`."""
        if own.low is None:
            return own
        rates, *ends = self._token_ends
        low, high = (float(np.interp(rate, rates, end)) for end in ends)
        return replace(own, low=min(low, own.value), high=max(high, own.value))

    @cached_property
    def _token_ends(self) -> tuple[Column, Column, Column]:
        """Rates, and ends of the time for each token that do not fall along them, (POINTS + 1,).

        They are those of slower and of faster deployments: where tokens take longer, more requests
        are in flight at the same rate, and tokens longer again, up to those of a full deployment.
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
        """Rates that rise from 0, and the requests in flight while there are any, (POINTS + 1,).

        The rates of requests that arrive are as many as are answered (Little's law).
        """
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
        """A time at a number of requests in flight."""
        ((value, low, high),) = self._ends(name, np.array([number])).tolist()
        if isnan(low):
            return Estimate(value)
        return Estimate(value, low, high, float(self.times.coverage[name][0]))

    def _ends(self, name: str, numbers: Column) -> Matrix:
        """A time at n numbers of requests in flight, and the ends of its interval, (n, 3).

        Each is linear in the number between those of the curve, and the last beyond them.
        """
        columns = self.times.estimates[name].T
        return np.array([np.interp(numbers, self.in_flight, own) for own in columns]).T

    def _widths(self, name: str, number: float) -> Column:
        """Ratios of the ends to a time that rise with the number of requests in flight, (2,)."""
        low, high = (self.times.estimates[name][:, 1:] / self.times.estimates[name][:, :1]).T
        risen = np.minimum.accumulate(low[::-1])[::-1], np.maximum.accumulate(high)
        return np.array([np.interp(number, self.in_flight, own) for own in risen])

    def _interpolated(self, name: str, numbers: Column) -> Column:
        """A time at n numbers of requests in flight, (n,)."""
        return np.interp(numbers, self.in_flight, self.times.estimates[name][:, 0])


def _risen(found: Matrix, in_flight: Column, parts: Column) -> Matrix:
    """Times that fall from no closed loop to the next, and of which no rate falls, (times, g).

    Of the times that no earlier one exceeds and those that exceed no later one, each is the
    geometric mean. Where a rate would fall, all rise by a share of what they would.

    Args:
        found: (times, g) times of g closed loops.
        in_flight: (g,) requests in flight of each, which rise.
        parts: (times,) how often each time is part of that of a request.
    """
    earlier = np.maximum.accumulate(found, axis=1)
    later = np.minimum.accumulate(found[:, ::-1], axis=1)[:, ::-1]
    risen: Matrix = np.sqrt(earlier * later)
    steps, more = np.diff(risen, axis=1), in_flight[1:] / in_flight[:-1] - 1.0
    for at, step in enumerate(steps.T):
        longest, longer = more[at] * (parts @ risen[:, at]), parts @ step
        risen[:, at + 1] = risen[:, at] + step * (longest / longer if longer > longest else 1.0)
    return risen


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


def _spread(capacity: Estimate) -> tuple[float, float]:
    """Standard deviations of the logarithm of a capacity, below and above its best estimate.

    It has a normal distribution on either side; both are 0 for a capacity without an interval.
    """
    value, low, high = capacity.value, capacity.low, capacity.high
    if low is None or high is None or not low < value < high:
        return 0.0, 0.0
    return log(value / low) / HALF_WIDTH, log(high / value) / HALF_WIDTH


def behind(rate: float, capacity: Estimate) -> float:
    """Probability that more requests arrive than a deployment of some capacity can answer."""
    own = log(rate / capacity.value)
    deviation = _spread(capacity)[own >= 0.0]
    return STANDARD.cdf(own / deviation) if deviation else float(own >= 0.0)


class _Capacities(NamedTuple):
    """Capacity of those deployments that keep up with a rate of arrivals, requests a second.

    Attributes:
        likely: its median.
        most, least: ends of its interval.
    """

    likely: float
    most: float
    least: float

    @classmethod
    def of(cls, rate: float, capacity: Estimate, level: float = USUAL) -> Self:
        """Those of a capacity whose upper end is above the rate, with ends at a level, percent."""
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
    """Whether so many requests a second arrive that, more likely than not, the queue has no end."""
    return arriving >= capacity.value


def as_served(query: Query, every: float) -> Query:
    """A closed loop with as many requests in flight as there are places; others as they are."""
    in_flight = query.deployment.load.concurrency
    return query if in_flight is None or in_flight <= every else in_closed_loop(query, every)


def without_place(query: Query, every: float) -> tuple[Limit, ...]:
    """That requests in flight of a closed loop have none of the places; none where all have one."""
    in_flight = query.deployment.load.concurrency or 0.0
    if in_flight <= every:
        return ()
    line = f"{in_flight:,.0f} requests are in flight, and {every:,.0f} have a place"
    return (Limit(f"{line}: the others wait, and rates are those of a full deployment"),)


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


def within_reach(query: Query, time: Prediction, capacity: Estimate | None) -> Prediction:
    """The times and rates of a deployment that may answer fewer requests than arrive.

    From the best estimate of the capacity on, times with queueing are withheld: a queue that grows
    for as long as requests arrive has no steady time. From the lower end of the capacity on, a
    limit says how probable that is. Rates are at most those of the arrivals and the capacity. From
    `NEAR` of the capacity on, a note says that times with queueing are extrapolated.

    Args:
        query: the deployment.
        time: its times.
        capacity: the largest rate of arrivals that it keeps up with; None where it is not known.
    """
    arriving = query.deployment.load.requests_per_s
    if arriving is None or capacity is None:
        return time
    near, late = _near(arriving / capacity.value), beyond(arriving, capacity)
    held = at_level({RATE: capacity}, query)[RATE]
    if not late and arriving <= min(own.low or own.value for own in (capacity, held)):
        return replace(time, limits=(*time.limits, *near))
    why = _overload(arriving, held, behind(arriving, capacity))
    withheld = dict.fromkeys(WITH_QUEUEING, why) if late else {}
    limit = Limit(f"{why}; {AT_CAPACITY}", severity="refusal")
    limits = (limit if late else Limit(f"{why}; {OTHER_CASE}"), *near, *time.limits)
    kept = {name: own for name, own in time.estimates.items() if name not in withheld}
    rates = [name for name in RATES if name in kept]
    kept |= {name: _answered(kept[name], time.estimates[RATE], arriving, held) for name in rates}
    withheld = {**time.withheld, **withheld}
    return replace(time, estimates=kept, withheld=withheld, in_domain=False, limits=limits)


def _answered(own: Estimate, of: Estimate, arriving: float, capacity: Estimate) -> Estimate:
    """A rate that follows from one of requests, where as many are answered as arrive, or can be."""
    ends = (capacity.value, capacity.low, capacity.high)
    value, low, high = (
        None if end is None else own.value / of.value * min(arriving, end) for end in ends
    )
    return replace(own, value=value or 0.0, low=low, high=high)


def _overload(arriving: float, capacity: Estimate, probability: float) -> str:
    """That more requests may arrive than can be answered."""
    own = rate_range(capacity.value, capacity.low, capacity.high)
    line = f"{rate_figure(arriving)} requests/s arrive, and {own} can be answered"
    unsure = f"with a probability of {100.0 * probability:.0f} % " * (probability < MOST_BEHIND)
    return f"{line}: {unsure}the queue grows without end"


def _near(share: float) -> tuple[Limit, ...]:
    """The note about times with queueing where so large a share of the capacity arrives."""
    if not NEAR <= share < 1.0:
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
