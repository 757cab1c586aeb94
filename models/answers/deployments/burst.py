"""Answers about a number of requests that arrive at once, or at a rate, with no others after them.

Those at once are answered by the event model, and by the closed loop for requests that wait for a
place. So are those that arrive faster than they are answered. Of a stream that a deployment keeps
up with, times are those without an end, and rates count until the last answer, as benchmarks do.
Intervals are those of the run without an end, around other values.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from forerun.data.errors import UnanswerableQuery
from forerun.data.language_models.requests import Requests
from forerun.features.deadline import check
from forerun.features.llm_serving.features import SERVER_S
from forerun.models.answers.deployments.answer import PER_DEVICE, Deployed, with_rate
from forerun.models.answers.deployments.arrivals import RATE, RATES, places
from forerun.models.answers.deployments.derived import scaled
from forerun.models.answers.deployments.metrics import METRICS
from forerun.models.answers.deployments.traced import scales_of, served
from forerun.models.answers.served_models import InUse
from forerun.models.answers.trust import Trust
from forerun.models.limit import Limit
from forerun.models.prediction import Estimate

LATENCY: Final = "request_latency_ms"
NOT_SCORED: Final = Trust(
    "C", "extrapolated: the interval is that of requests in flight without an end"
)
STEADY: Final = "a burst has no time to the first token without queueing"


def with_burst(own: Deployed, count: int, in_use: InUse) -> Deployed:
    """What is known of a deployment, with the times of `count` requests that arrive at once.

    They arrive at the rate of the load where it has one.

    Raises:
        UnanswerableQuery: as `served`, or a request is longer than the cache of a worker.
        DeadlineExceeded: the time of the request is over.
    """
    if "tokens_per_s" not in own.estimates:
        return own
    check()
    rate, latency = own.query.deployment.load.requests_per_s, own.estimates.get(LATENCY)
    if rate is not None and latency is not None:
        span_s = (count - 1) / rate + latency.value / 1e3
        answered = min(count / span_s, own.estimates[RATE].value)
        share = answered / own.estimates[RATE].value
        values = {n: share * own.estimates[n].value for n in RATES if n in own.estimates}
        limit = f"rates are means over {count:,} requests, the last of which ends after"
        return _with(own, values, f"{limit} {span_s:,.3g} s")
    values = _means(own, count, in_use)
    arrive = "at once" if rate is None else f"at {rate:,.4g}/s"
    found = _with(
        own,
        values,
        f"times and rates are means over {count:,} requests that arrive {arrive}, by the event "
        f"model; the last answer ends after {count / values[RATE]:,.3g} s",
    )
    estimates = dict(found.estimates)
    estimates.pop("ttft_service_ms", None)
    trust = {n: NOT_SCORED if n != "peak_memory_mib" else own.trust[n] for n in estimates}
    missing = {n: why for n, why in own.missing.items() if n not in estimates}
    missing["ttft_service_ms"] = STEADY
    capacity = None if rate is None else own.capacity
    return replace(found, estimates=estimates, missing=missing, trust=trust, capacity=capacity)


def _with(own: Deployed, values: Mapping[str, float], limit: str) -> Deployed:
    """What is known, with other times and rates, and energy and price, which follow from these."""
    moved: dict[str, Estimate] = dict(own.estimates)
    for name, value in values.items():
        moved[name] = _moved(moved.get(name, Estimate(value)), value)
    rate, devices = moved["tokens_per_s"], own.query.deployment.devices
    moved[PER_DEVICE] = scaled(rate, 1.0 / devices)
    moved = with_rate(moved, rate, devices, own.price)
    known: dict[str, Estimate] = {name: moved[name] for name in METRICS if name in moved}
    return replace(own, estimates=known, limits=(*own.limits, Limit(limit)))


def _means(own: Deployed, count: int, in_use: InUse) -> dict[str, float]:
    """Means and rates of so many requests, times in ms and rates a second.

    As many as have a place are served by the event model. Those beyond wait until one of them has
    its answer and all of them their first token, and then at the rate of the closed loop with every
    place taken, whose times they have.

    Raises:
        UnanswerableQuery: as `served`, or one is longer than the cache of a worker.
    """
    query, known = own.query, own.estimates
    load = query.deployment.load
    first = min(count, int(places(query)))
    lengths = (
        np.full(first, max(1, round(tokens)), dtype=np.intp)
        for tokens in (load.input_tokens, load.output_tokens)
    )
    arrival_s = np.arange(count) / (load.requests_per_s or np.inf)
    requests = Requests(arrival_s[:first], *lengths)
    scales, _ = scales_of(query, requests, in_use)
    found = served(query, requests, scales, "round_robin")
    if found.refused:
        raise UnanswerableQuery("A request of these lengths is longer than the cache of a worker.")
    rest, rate = count - first, known[RATE].value
    later_ones = np.arange(1, rest + 1)
    ends_s, begun_s = (arrival_s[:first] + own_s for own_s in (found.latency_s, found.ttft_s))
    free_s = np.sort(ends_s)[np.minimum(later_ones, first) - 1]
    starts_s = np.maximum(free_s, begun_s.max()) + np.maximum(0, later_ones - first) / rate
    wait_s = float(np.maximum(starts_s - arrival_s[first:], 0.0).mean()) if rest else 0.0
    served_ms = {n: one.value for n, one in known.items() if n in ("ttft_service_ms", "tpot_ms")}
    later = {
        "ttft_ms": wait_s + served_ms.get("ttft_service_ms", 0.0) / 1e3,
        "tpot_ms": served_ms.get("tpot_ms", 0.0) / 1e3,
        LATENCY: wait_s + first / rate,
    }
    early = {
        "ttft_ms": float((found.ttft_s + SERVER_S).mean()),
        "tpot_ms": float(found.tpot_s.mean()),
        LATENCY: float((found.latency_s + SERVER_S).mean()),
    }
    means = {n: 1e3 * (first * early[n] + rest * later[n]) / count for n in early}
    answered = count / (found.span_s + rest / rate)
    return {
        **{name: value for name, value in means.items() if np.isfinite(value)},
        RATE: answered,
        "tokens_per_s": answered * max(1.0, round(load.output_tokens)),
    }


def _moved(known: Estimate, value: float) -> Estimate:
    """An estimate with another value, whose interval has the same ratios."""
    ratio = value / known.value
    low, high = (None if end is None else ratio * end for end in (known.low, known.high))
    return Estimate(value, low, high, known.coverage)
