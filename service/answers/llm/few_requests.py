"""Few requests in flight: hardly any were measured, so corrections are not taken to vary by length.

With one request in flight, a time is the closed form, which does not fall with the lengths of
requests, times its correction at usual lengths. Up to `FEWEST_TOGETHER` requests, that goes over
into the correction at the lengths of the deployment.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from forerun.data.query import Query
from forerun.features.llm_serving.features import FEWEST_TOGETHER
from forerun.models.llm_serving.time_columns import TimeColumns
from forerun.models.prediction import Predictions

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


def with_usual_corrections(
    queries: Sequence[Query], times: TimeColumns, usual: Mapping[int, int], forms: Predictions
) -> TimeColumns:
    """Times of n deployments, some with the correction at usual lengths, as far as `weight` says.

    Args:
        queries: the deployments.
        times: their times and rates.
        usual: position of a deployment -> that of the same `at_usual_lengths`, k of them.
        forms: the first and then the second in closed form, 2 k.
    """
    rows, at = (np.array([*own], dtype=np.intp) for own in (usual.keys(), usual.values()))
    shares = np.array([weight(queries[row]) for row in rows])
    factors = {name: np.ones(len(times)) for name in times.estimates}
    for name in TIMES:
        values, (here, there) = times.estimates[name][:, 0], forms.values[name].reshape(2, -1)
        factors[name][rows] = (values[at] / there / (values[rows] / here)) ** shares
    own = {name: (factors[name] * times.estimates[name][:, 0])[rows] for name in TIMES}
    loads = [queries[row].deployment.load for row in rows]
    tokens_after = np.array([max(load.output_tokens - 1.0, 0.0) for load in loads])
    latency = own["ttft_ms"] + tokens_after * own["tpot_ms"]
    slower = latency / times.estimates["request_latency_ms"][rows, 0]
    for name in factors.keys() - set(TIMES):
        factors[name][rows] = slower if name == "request_latency_ms" else 1.0 / slower
    return times.scaled(factors)
