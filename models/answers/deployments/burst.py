"""Answers for a finite number of requests, arriving at once or at a rate.

Requests that arrive at once, or faster than they are answered, are simulated by the event model.
For a stream that the deployment sustains, the steady-state times hold and rates are counted until
the last answer, as benchmarks do. Intervals keep the relative width of the steady-state answer,
within what the spec sheet allows.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from forerun.data.errors import UnanswerableQuery
from forerun.data.language_models.requests import Requests
from forerun.features.deadline import check
from forerun.models.answers.deployments.answer import PER_DEVICE, Deployed, with_rate
from forerun.models.answers.deployments.arrivals import RATE, RATES
from forerun.models.answers.deployments.bounds import burst_within_sheet
from forerun.models.answers.deployments.derived import scaled
from forerun.models.answers.deployments.metrics import METRICS
from forerun.models.answers.deployments.traced import scales_of, served
from forerun.models.answers.served_models import InUse
from forerun.models.answers.trust import Trust
from forerun.models.limit import Limit
from forerun.models.prediction import Estimate

LATENCY: Final = "request_latency_ms"
NOT_SCORED: Final = Trust(
    "C", "extrapolated: the interval is that of a constant number of requests in flight"
)
STEADY: Final = "a burst has no time to the first token without queueing"


def with_burst(deployed: Deployed, count: int, in_use: InUse) -> Deployed:
    """The answer about a deployment for a burst of `count` requests.

    They arrive at the load's rate if it has one, otherwise at once.

    Raises:
        UnanswerableQuery: as `served`, or a request does not fit the KV cache of a worker.
        DeadlineExceeded: the request's deadline has passed.
    """
    if "tokens_per_s" not in deployed.estimates:
        return deployed
    check()
    rate, latency = deployed.query.deployment.load.requests_per_s, deployed.estimates.get(LATENCY)
    if rate is not None and latency is not None:
        span_s = (count - 1) / rate + latency.value / 1e3
        answered = min(count / span_s, deployed.estimates[RATE].value)
        share = answered / deployed.estimates[RATE].value
        values = {n: share * deployed.estimates[n].value for n in RATES if n in deployed.estimates}
        limit = f"rates are means over {count:,} requests, the last of which ends after"
        return _with(deployed, count, values, f"{limit} {span_s:,.3g} s")
    values = _means(deployed, count, in_use)
    arrive = "at once" if rate is None else f"at {rate:,.4g}/s"
    found = _with(
        deployed,
        count,
        values,
        f"times and rates are means over {count:,} requests that arrive {arrive}, by the event "
        f"model; the last answer ends after {count / values[RATE]:,.3g} s",
    )
    estimates = _within_request(found.estimates, deployed.query.deployment.load.output_tokens)
    estimates.pop("ttft_service_ms", None)
    trust = {n: NOT_SCORED if n != "peak_memory_mib" else deployed.trust[n] for n in estimates}
    missing = {n: why for n, why in deployed.missing.items() if n not in estimates}
    missing["ttft_service_ms"] = STEADY
    capacity = None if rate is None else deployed.capacity
    return replace(found, estimates=estimates, missing=missing, trust=trust, capacity=capacity)


def _with(deployed: Deployed, count: int, values: Mapping[str, float], limit: str) -> Deployed:
    """The answer with other times and rates, and with energy and price recomputed from them."""
    moved: dict[str, Estimate] = dict(deployed.estimates)
    for name, value in values.items():
        known = moved.get(name, Estimate(value))
        moved[name] = scaled(known, value / known.value)
    moved = burst_within_sheet(deployed.query, count, moved)
    rate, devices = moved["tokens_per_s"], deployed.query.deployment.devices
    moved[PER_DEVICE] = scaled(rate, 1.0 / devices)
    moved = with_rate(moved, rate, devices, deployed.price)
    estimates: dict[str, Estimate] = {name: moved[name] for name in METRICS if name in moved}
    return replace(deployed, estimates=estimates, limits=(*deployed.limits, Limit(limit)))


def _within_request(estimates: Mapping[str, Estimate], tokens: float) -> dict[str, Estimate]:
    """Estimates in which the first token of an answer of `tokens` leaves time for the others.

    The interval of the steady state covers queues of any length; a burst has one that ends.
    """
    first, each, whole = (estimates.get(name) for name in ("ttft_ms", "tpot_ms", LATENCY))
    if first is None or first.high is None or whole is None or whole.high is None:
        return dict(estimates)
    others = 0.0 if each is None else (tokens - 1.0) * (each.low or 0.0)
    high = max(first.value, min(first.high, whole.high - others))
    return {**estimates, "ttft_ms": replace(first, high=high)}


def _means(deployed: Deployed, count: int, in_use: InUse) -> dict[str, float]:
    """Mean times (ms) and rates (per second) of a burst by the event model.

    Raises:
        UnanswerableQuery: as `served`, or a request does not fit the KV cache of a worker.
    """
    query, load = deployed.query, deployed.query.deployment.load
    lengths = (
        np.full(count, max(1, round(tokens)), dtype=np.intp)
        for tokens in (load.input_tokens, load.output_tokens)
    )
    requests = Requests(np.arange(count) / (load.requests_per_s or np.inf), *lengths)
    scales, _ = scales_of(query, requests, in_use)
    found = served(query, requests, scales, "round_robin")
    if found.refused:
        raise UnanswerableQuery("A request of these lengths is longer than the cache of a worker.")
    means = {name: float(times.mean()) for name, times in found.times_ms().items()}
    return {
        **{name: value for name, value in means.items() if np.isfinite(value)},
        RATE: found.requests_per_s,
        "tokens_per_s": found.tokens_per_s,
    }
