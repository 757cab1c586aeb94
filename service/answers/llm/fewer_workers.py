"""Disaggregated deployments: a deployment serves at least as well as with some workers idle.

Boosters that were fitted to few numbers of workers predict that a request now and then takes longer
with more of them. The answer is therefore that of the fastest deployment with as many or fewer
workers, on the same load.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Final

from forerun.data.query import Operation, Query
from forerun.models.prediction import Prediction
from forerun.service.answers.llm.costs import scaled

COUNTS: Final = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256)
"""Numbers of workers of a pool that are tried beside its own."""


def with_fewer_workers(query: Query) -> list[Query]:
    """The deployment with fewer workers for prompts, for decoding, or both.

    There are none where prompts have no workers of their own: such workers have nothing in common.
    """
    deployment, first = query.deployment, query.deployment.prefill
    if first is None:
        return []
    own = first.workers, deployment.pool.workers
    counts = [[*(count for count in COUNTS if count < most), most] for most in own]
    found = []
    for prefill, decode in product(*counts):
        if (prefill, decode) != own:
            fewer = replace(
                deployment,
                prefill=replace(first, workers=prefill),
                pool=replace(deployment.pool, workers=decode),
            )
            found.append(
                replace(query, workload=fewer, operation=Operation(device_count=fewer.devices))
            )
    return found


def fastest(query: Query, own: Prediction, fewer: Sequence[Prediction]) -> Prediction:
    """The times of the deployment, or of the one with fewer workers whose requests take less time.

    Args:
        query: the deployment.
        own: its times, whose limits are kept.
        fewer: times of the deployments of `with_fewer_workers`.
    """
    best = min((own, *fewer), key=lambda time: time.estimates["request_latency_ms"].value)
    if best is own:
        return own
    estimates = dict(best.estimates)
    devices = query.deployment.devices
    estimates["tokens_per_s_per_device"] = scaled(estimates["tokens_per_s"], 1.0 / devices)
    return replace(own, estimates=estimates)
