"""Request latency and throughput from time to first token and time per token, by Little's law."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from forerun.data.columns import Column
from forerun.data.query import Query


class Loads(NamedTuple):
    """Loads of n deployments, each (n,).

    Attributes:
        output: tokens of an answer.
        in_flight: concurrency of closed-loop loads; NaN for open-loop ones.
        arrivals: arrival rate of open-loop loads, requests/s; NaN for closed-loop ones.
        devices: devices of all pools.
    """

    output: Column
    in_flight: Column
    arrivals: Column
    devices: Column

    @classmethod
    def of(cls, queries: Sequence[Query]) -> Self:
        """The loads of n deployments."""
        loads = [query.deployment.load for query in queries]
        return cls(
            np.array([load.output_tokens for load in loads], dtype=np.float64),
            np.array([load.concurrency or np.nan for load in loads]),
            np.array([load.requests_per_s or np.nan for load in loads]),
            np.array([query.deployment.devices for query in queries], dtype=np.float64),
        )


def metrics_of(
    loads: Loads,
    service_share: Column,
    tpot: Column,
    ttft: Column,
) -> dict[str, Column]:
    """Metric -> (n,) values, from both times in seconds, by Little's law.

    Under open-loop load, throughput is assumed to equal the arrival rate.
    """
    latency = ttft + np.maximum(loads.output - 1.0, 0.0) * tpot
    rate = np.where(np.isnan(loads.in_flight), loads.arrivals, loads.in_flight / latency)
    return {
        "tpot_ms": 1e3 * tpot,
        "ttft_ms": 1e3 * ttft,
        "ttft_service_ms": 1e3 * ttft * service_share,
        "request_latency_ms": 1e3 * latency,
        "requests_per_s": rate,
        "tokens_per_s": rate * loads.output,
        "tokens_per_s_per_device": rate * loads.output / loads.devices,
    }
