"""Answers about requests that all arrive at once, with no others.

They are those of the event model, and of the closed loop for requests that wait for a place. The
intervals are those of the closed loop with as many requests in flight, around other values.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from forerun.data.errors import UnanswerableQuery
from forerun.data.language_models.requests import Requests
from forerun.features.deadline import check
from forerun.features.llm_serving.features import SERVER_S
from forerun.models.answers.deployments.answer import PER_DEVICE, Deployed, with_rate
from forerun.models.answers.deployments.arrivals import places
from forerun.models.answers.deployments.derived import scaled
from forerun.models.answers.deployments.metrics import METRICS
from forerun.models.answers.deployments.traced import scales_of, served
from forerun.models.answers.served_models import InUse
from forerun.models.answers.trust import Trust
from forerun.models.limit import Limit
from forerun.models.prediction import Estimate

TIMES: Final = ("ttft_ms", "tpot_ms", "request_latency_ms", "requests_per_s", "tokens_per_s")
NOT_SCORED: Final = Trust(
    "C", "extrapolated: the interval is that of requests in flight without an end"
)
STEADY: Final = "a burst has no time to the first token without queueing"


def with_burst(own: Deployed, count: int, in_use: InUse) -> Deployed:
    """What is known of a deployment, with the times of `count` requests that arrive at once.

    Raises:
        UnanswerableQuery: as `served`, or a request is longer than the cache of a worker.
        DeadlineExceeded: the time of the request is over.
    """
    query = own.query
    if "tokens_per_s" not in own.estimates:
        return own
    check()
    values = _means(own, count, in_use)
    span_s = count / values["requests_per_s"]
    estimates = dict(own.estimates)
    estimates.pop("ttft_service_ms", None)
    for name in TIMES:
        if name in estimates:
            estimates[name] = _moved(estimates[name], values[name])
    rate, devices = estimates["tokens_per_s"], query.deployment.devices
    estimates[PER_DEVICE] = scaled(rate, 1.0 / devices)
    estimates = with_rate(estimates, rate, devices, own.price)
    trust = {n: NOT_SCORED if n != "peak_memory_mib" else own.trust[n] for n in estimates}
    limits = (
        *own.limits,
        Limit(
            f"times and rates are means over {count:,} requests that arrive at once, by the event "
            f"model; the last answer ends after {span_s:,.3g} s"
        ),
    )
    return replace(
        own,
        estimates={name: estimates[name] for name in METRICS if name in estimates},
        missing={**own.missing, "ttft_service_ms": STEADY},
        trust=trust,
        limits=limits,
        capacity=None,
    )


def _means(own: Deployed, count: int, in_use: InUse) -> dict[str, float]:
    """Means and rates of so many requests that arrive at once, in the units of `TIMES`.

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
    requests = Requests(np.zeros(first), *lengths)
    scales, _ = scales_of(query, requests, in_use)
    found = served(query, requests, scales, "round_robin")
    if found.refused:
        raise UnanswerableQuery("A request of these lengths is longer than the cache of a worker.")
    rest, rate = count - first, known["requests_per_s"].value
    later_ones = np.arange(1, rest + 1)
    free_s = np.sort(found.latency_s)[np.minimum(later_ones, first) - 1]
    waits_s = np.maximum(free_s, found.ttft_s.max()) + np.maximum(0, later_ones - first) / rate
    wait_s = float(waits_s.mean()) if rest else 0.0
    served_ms = {n: one.value for n, one in known.items() if n in ("ttft_service_ms", "tpot_ms")}
    later = {
        "ttft_ms": wait_s + served_ms.get("ttft_service_ms", 0.0) / 1e3,
        "tpot_ms": served_ms.get("tpot_ms", 0.0) / 1e3,
        "request_latency_ms": wait_s + first / rate,
    }
    early = {
        "ttft_ms": float((found.ttft_s + SERVER_S).mean()),
        "tpot_ms": float(found.tpot_s.mean()),
        "request_latency_ms": float((found.latency_s + SERVER_S).mean()),
    }
    means = {n: 1e3 * (first * early[n] + rest * later[n]) / count for n in early}
    answered = count / (found.span_s + rest / rate)
    return {
        **means,
        "requests_per_s": answered,
        "tokens_per_s": answered * max(1.0, round(load.output_tokens)),
    }


def _moved(known: Estimate, value: float) -> Estimate:
    """An estimate with another value, whose interval has the same ratios."""
    ratio = value / known.value
    low, high = (None if end is None else ratio * end for end in (known.low, known.high))
    return Estimate(value, low, high, known.coverage)
