"""Checks by the event model whether a fleet meets its latency limits."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from forerun.models.answers.deployments.traced import scales_of, served
from forerun.models.answers.served_models import InUse
from forerun.models.llm_serving.fleet import Fleet

LEVEL: Final = 0.95


@dataclass(frozen=True, slots=True)
class Check:
    """Outcome for the requests of one replica, excluding windows already known to miss the limits.

    Attributes:
        requests: number of counted requests.
        kept: share of them that meet every limit.
        low, high: binomial interval of that share at `LEVEL` (Clopper and Pearson, 1934), treating
            requests as independent.
        windows_kept: share of the non-empty windows whose mean times meet every limit.
    """

    requests: int
    kept: float
    low: float
    high: float
    windows_kept: float


def replayed(
    fleet: Fleet, limits_ms: Mapping[str, float], in_use: InUse, *, most: int, seed: int = 0
) -> Check | None:
    """Simulate one replica of a fleet with the event model.

    None if no window meets the limits, and for pipeline parallelism: real stages process several
    batches at once, the event model only one.

    Args:
        fleet: the fleet.
        limits_ms: metric -> limit.
        in_use: the predictor to whose times the iterations are scaled.
        most: approximate maximum number of simulated requests.
        seed: of the random draws.

    Raises:
        UnanswerableQuery: as `served`.
    """
    from scipy.stats import binomtest

    deployment = fleet.unit.query.deployment
    if max(pool.parallelism.pipeline for pool in (deployment.pool, deployment.prefill) if pool) > 1:
        return None
    requests, window = fleet.traffic.of_one(fleet.ready, most, seed)
    scales, _ = scales_of(fleet.unit.query, requests, in_use)
    found = served(fleet.unit.query, requests, scales, "round_robin")
    times = found.times_ms()
    counted = ~fleet.missed[window] & ~np.isnan(found.latency_s)
    kept, windows = counted.copy(), np.bincount(window[counted], minlength=len(fleet.missed)) > 0
    met = windows.sum()
    for name, limit in limits_ms.items():
        known = counted & ~np.isnan(times[name])
        totals, numbers = (
            np.bincount(window[known], weights, len(windows))
            for weights in (times[name][known], None)
        )
        kept &= ~(times[name] > limit)
        windows &= totals <= limit * numbers
    if not met:
        return None
    count = int((~fleet.missed[window]).sum())
    low, high = binomtest(int(kept.sum()), count).proportion_ci(LEVEL)
    return Check(count, float(kept.sum() / count), low, high, float(windows.sum() / met))
