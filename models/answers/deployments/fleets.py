"""Whether a fleet keeps its limits by the event model, on what one replica gets over time."""

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
    """What the requests of one replica met, without those of windows that miss the limits anyway.

    Attributes:
        requests: how many count.
        kept: share of them that each keep every limit.
        low, high: binomial interval of it at `LEVEL` (Clopper and Pearson, 1934), as if requests
            did not depend on each other.
        windows_kept: share of the windows with requests whose means keep every limit.
    """

    requests: int
    kept: float
    low: float
    high: float
    windows_kept: float


def replayed(
    fleet: Fleet, limits_ms: Mapping[str, float], in_use: InUse, *, most: int, seed: int = 0
) -> Check | None:
    """What the event model says of one replica of a fleet.

    None where no window keeps the limits, and of stages of a pipeline, which work on several
    batches at a time, and in the event model on one.

    Args:
        fleet: the fleet.
        limits_ms: limit of each time.
        in_use: the predictor to whose times those of iterations are scaled.
        most: requests that are replayed at most, about.
        seed: of the draws.

    Raises:
        UnanswerableQuery: as of `served`.
    """
    from scipy.stats import binomtest

    deployment = fleet.unit.query.deployment
    if max(own.parallelism.pipeline for own in (deployment.pool, deployment.prefill) if own) > 1:
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
