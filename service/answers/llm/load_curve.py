"""Times of a deployment over the number of requests in flight, and over the rate of arrivals.

The curve is that of closed loops with 1 request in flight to as many as have a place. Requests that
arrive at a rate of their own find the number of requests in flight for which Little's law holds,
and queue the longer, the closer their rate is to the capacity.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp, log, sqrt
from typing import Final, Self

import numpy as np

from forerun.data.columns import Column
from forerun.data.query import Query
from forerun.features.llm_serving.features import FEWEST_TOGETHER
from forerun.models.llm_serving.latency import OVERLOADED
from forerun.models.llm_serving.time_columns import TimeColumns
from forerun.models.prediction import Estimate, Prediction

RATE: Final = "requests_per_s"
STEP: Final = 2.5
"""Ratio of neighbouring numbers of requests in flight at which closed loops are predicted."""
STEP_OF_LAST: Final = 1.5
"""The smallest ratio of the last two numbers between which there is a further one."""
CLOSER: Final = sqrt(2.0)
"""The same near the greatest rate, where it is not the one without a free place."""
POINTS: Final = 512
"""Numbers of requests in flight at which Little's law is solved."""
FEWEST: Final = 1e-3
"""The smallest of them on average."""


def closed_loops(query: Query, places: float) -> list[Query]:
    """The deployment with 1 request in flight, `STEP` times as many, ..., and one for each place.

    Most are fastest with nearly every place taken, so there is a further number before that.
    """
    steps = STEP ** np.arange(int(np.ceil(log(places) / log(STEP))))
    last = [sqrt(float(number) * places) for number in steps[-1:] if places > STEP_OF_LAST * number]
    return [in_closed_loop(query, float(number)) for number in (*steps, *last, places)]


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
        """Closed loops between the fastest and its neighbours; none where hardly a place is free.

        Args:
            loops: the closed loops of the curve.
        """
        best, last = self.best, len(loops) - 1
        nearly_full = self.in_flight[best] * STEP_OF_LAST > self.in_flight[last]
        if best == last or (best == last - 1 and not nearly_full):
            return []
        ends = self.in_flight[[max(best - 1, 0), best, best + 1]].tolist()
        numbers = [
            low * CLOSER**step
            for low, high in pairwise(ends)
            for step in range(1, int(np.ceil(log(high / low) / log(CLOSER) - 1e-9)))
        ]
        return [in_closed_loop(loops[best], number) for number in numbers]

    def at_arrivals(self, arriving: Prediction, capacity: float) -> Prediction:
        """Times of requests that arrive at a rate of their own, which is below the capacity.

        A token takes as long as in the closed loop with the same number of requests in flight;
        where the server is idle in part, with the mean number while there is any. Prompts arrive
        alone, so their time without queueing is the one of closed loops that has no queueing
        either. They wait for each other as in the prediction given, or as in a queue of many
        servers, whichever is longer.

        Args:
            arriving: times by the predictor, whose limits, rates and queue of prompts are kept.
            capacity: the greatest rate that can be answered, requests a second.
        """
        estimates = arriving.estimates
        rate = estimates[RATE].value
        first, alone = estimates["ttft_ms"], estimates["ttft_service_ms"]
        queue_ms = max(first.value - alone.value, self._queue_ms(rate, capacity))
        number = self._in_flight_at(rate)
        each = self._at("tpot_ms", number)
        served = self._at("ttft_service_ms", number)
        first = _with_value(first, served.value + queue_ms)
        whole = self._at("request_latency_ms", number)
        whole = _with_value(whole, first.value + self.tokens_after * each.value)
        changed = {"tpot_ms": each, "ttft_service_ms": served, "ttft_ms": first}
        limits = tuple(limit for limit in arriving.limits if limit != OVERLOADED)
        return replace(
            arriving,
            estimates={**estimates, **changed, "request_latency_ms": whole},
            limits=limits,
        )

    def _in_flight_at(self, rate: float) -> float:
        """Requests in flight while there are any, where so many arrive a second (Little's law)."""
        on_average = np.geomspace(FEWEST, self.in_flight[-1], POINTS)
        busy = while_busy(on_average)
        rates = np.maximum.accumulate(1e3 * on_average / self._latency_ms(busy))
        return float(np.interp(rate, np.append(0.0, rates), np.append(1.0, busy)))

    def _queue_ms(self, rate: float, capacity: float) -> float:
        """Mean waiting in a queue of as many servers as requests are in flight at the capacity.

        Sakasegawa's approximation of M/M/m: it is without bound as the rate nears the capacity.
        """
        servers = 1e-3 * capacity * float(self._latency_ms(self.in_flight[-1:])[0])
        busy = rate / capacity
        power = sqrt(2.0 * (max(servers, 1.0) + 1.0)) - 1.0
        return 1e3 * float(busy**power / max(1.0 - busy, 1e-9) / capacity)

    def _latency_ms(self, numbers: Column) -> Column:
        """Time of a request without queueing, at numbers in flight, (n,)."""
        each, first = (self._interpolated(name, numbers) for name in ("tpot_ms", "ttft_service_ms"))
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

        It is nearly linear in the number. Up to `FEWEST_TOGETHER` its logarithm is, since one
        correction goes over into another (`few_requests`).
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
