"""The largest rate of requests that a deployment keeps up with, and loads that go beyond it.

That capacity is the greatest rate of the same deployment with any number of requests always in
flight that have a place (`load_curve`).
"""

from dataclasses import replace
from math import ceil
from typing import Final

from forerun.data.query import Query
from forerun.features.llm_serving.engine_settings import Limits
from forerun.models.limit import LATENCY, Limit
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


def places(query: Query) -> float:
    """Requests that all ranks of a deployment can serve at a time, at least one."""
    deployment, pool = query.deployment, query.deployment.pool
    ranks = pool.workers * pool.parallelism.attention_data
    return max(1.0, Limits.of(deployment, query.device, pool.parallelism).sequences * ranks)


def may_wait_for_a_place(query: Query) -> bool:
    """Whether requests arrive at a rate of their own, or more are in flight than have a place."""
    in_flight = query.deployment.load.concurrency
    return in_flight is None or in_flight > places(query)


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

    At the capacity itself it does, too.
    """
    return arriving >= capacity.value


def within_capacity(
    query: Query, time: Prediction, full: Prediction, *, measured: bool
) -> Prediction:
    """The times of a closed loop, whose rate is none that its places rule out.

    Requests that have no place find a full deployment: its rates and its times per token are the
    answer, and requests wait for a place first. Measured runs may show that there are more places:
    where the device has some, a closed loop keeps its rate within the interval of the full one.

    Args:
        query: the deployment.
        time: its times and rates.
        full: those of the deployment with a request in flight for each place.
        measured: whether the times follow measured runs of a user on the device.
    """
    load, capacity, own = query.deployment.load, full.estimates[RATE], time.estimates[RATE]
    most = capacity.value if capacity.high is None else capacity.high
    if load.concurrency is None or (measured and own.value <= most):
        return time
    waiting = load.concurrency - places(query)
    changed = {
        name: _later(full.estimates[name], waiting, capacity)
        for name in WITH_QUEUEING
        if name in full.estimates
    }
    limit = Limit(
        f"{waiting:,.0f} of the {load.concurrency:,.0f} requests in flight have no place and wait; "
        "rates are those of a deployment that is full"
    )
    return replace(
        full,
        estimates={**full.estimates, **changed},
        in_domain=False,
        limits=(limit, *full.limits),
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


def without_endless_queues(query: Query, time: Prediction, capacity: Estimate | None) -> Prediction:
    """The times of a deployment, without those that grow for as long as requests arrive.

    Where more requests arrive than the capacity, times with queueing are withheld. Where that is
    not certain, because the interval of the capacity holds the rate of arrivals, they have no
    interval, and those of the rates begin at the capacity's lower end. A limit says either. From
    `NEAR` of the capacity on, a note says that times with queueing are extrapolated.

    Args:
        query: the deployment.
        time: its times.
        capacity: the largest rate of arrivals that it keeps up with; None where it is not known.
    """
    arriving = query.deployment.load.requests_per_s
    if arriving is None or capacity is None:
        return time
    low = capacity.value if capacity.low is None else capacity.low
    near = () if beyond(arriving, capacity) else _near(arriving / capacity.value)
    if arriving <= low and not beyond(arriving, capacity):
        return replace(time, limits=(*time.limits, *near))
    own = rate_range(capacity.value, capacity.low, capacity.high)
    why = f"{rate_figure(arriving)} requests/s arrive, and {own} can be answered: "
    if beyond(arriving, capacity):
        why += "the queue grows without end"
        kept = {name: own for name, own in time.estimates.items() if name not in WITH_QUEUEING}
        withheld = {**time.withheld, **dict.fromkeys(WITH_QUEUEING, why)}
        limit = Limit(f"{why}; {AT_CAPACITY}", severity="refusal")
        found = replace(time, estimates=kept, withheld=withheld)
    else:
        limit = Limit(why + "if it does not keep up, the queue grows without end")
        share = low / arriving
        found = replace(
            time, estimates={name: _uncertain(name, e, share) for name, e in time.estimates.items()}
        )
    return replace(found, in_domain=False, limits=(limit, *near, *time.limits))


def _near(share: float) -> tuple[Limit, ...]:
    """The note about times with queueing where so large a share of the capacity arrives."""
    if share < NEAR:
        return ()
    own = f"requests arrive at {min(100.0 * share, 99.99):.4g} % of the capacity"
    return (Limit(f"{own}: from {100.0 * NEAR:.0f} % on, {EXTRAPOLATED}", LATENCY, "note"),)


def rate_range(rate: float, low: float | None, high: float | None) -> str:
    """A rate, and its interval where it has one, in the digits of `rate_figure`."""
    if low is None or high is None:
        return rate_figure(rate)
    return f"{rate_figure(rate)} ({rate_figure(low)} to {rate_figure(high)})"


def rate_figure(rate: float) -> str:
    """A rate in three digits, or all of its whole ones."""
    return f"{rate:,.0f}" if rate >= 100.0 else f"{rate:.3g}"


def _uncertain(metric: str, own: Estimate, share: float) -> Estimate:
    """An estimate where at least this share of the requests that arrive is answered in time."""
    if metric in WITH_QUEUEING:
        return Estimate(own.value)
    if metric in RATES and own.low is not None:
        return replace(own, low=share * own.value)
    return own
