"""Few requests in flight: hardly any were measured, so corrections are not taken to vary by length.

With one request in flight, a time is the closed form, which does not fall with the lengths of
requests, times its correction at usual lengths. Up to `FEWEST_TOGETHER` requests, that goes over
into the correction at the lengths of the deployment.
"""

from dataclasses import replace
from typing import Final

from forerun.data.query import Query
from forerun.features.llm_serving.features import FEWEST_TOGETHER
from forerun.models.prediction import Prediction
from forerun.service.answers.llm.costs import scaled

USUAL_TOKENS: Final = (1024.0, 256.0)
"""Tokens of a prompt and of an answer at which the correction is taken."""
TIMES: Final = ("ttft_ms", "ttft_service_ms", "tpot_ms")


def weight(query: Query) -> float:
    """Weight of the correction at usual lengths: 1 for one request in flight, 0 for many.

    Disaggregated deployments keep their correction: they were measured with few requests.
    """
    in_flight = query.deployment.load.concurrency
    if in_flight is None or query.deployment.prefill is not None:
        return 0.0
    return min(max((FEWEST_TOGETHER - in_flight) / (FEWEST_TOGETHER - 1.0), 0.0), 1.0)


def at_usual_lengths(query: Query) -> Query:
    """The deployment with requests of `USUAL_TOKENS`."""
    given, answer = USUAL_TOKENS
    load = replace(query.deployment.load, input_tokens=given, output_tokens=answer)
    return replace(query, workload=replace(query.deployment, load=load))


def with_usual_correction(
    query: Query, own: Prediction, usual: Prediction, closed: Prediction, closed_usual: Prediction
) -> Prediction:
    """The times of a deployment with the correction at usual lengths, as far as `weight` says.

    Args:
        query: the deployment.
        own: its times and rates.
        usual: those at usual lengths.
        closed: the first in closed form.
        closed_usual: the second in closed form.
    """
    share, load = weight(query), query.deployment.load
    estimates = dict(own.estimates)
    for name in TIMES:
        here, there = (_ratio(*pair, name) for pair in ((own, closed), (usual, closed_usual)))
        estimates[name] = scaled(estimates[name], (there / here) ** share)
    tokens_after = max(load.output_tokens - 1.0, 0.0)
    whole = estimates["request_latency_ms"]
    latency = estimates["ttft_ms"].value + tokens_after * estimates["tpot_ms"].value
    for name, estimate in own.estimates.items():
        if name == "request_latency_ms":
            estimates[name] = scaled(estimate, latency / whole.value)
        elif name not in TIMES:
            estimates[name] = scaled(estimate, whole.value / latency)
    return replace(own, estimates=estimates)


def _ratio(one: Prediction, other: Prediction, name: str) -> float:
    return one.estimates[name].value / other.estimates[name].value
