"""Answers about serving generative models: power, throughput, energy per token or sample."""

from collections.abc import Mapping
from math import isfinite
from typing import Final

import numpy as np

from forerun.data.errors import UnanswerableQuery
from forerun.data.metrics import metric
from forerun.data.query import Query
from forerun.data.workload import Diffusion, LlmServing
from forerun.features.serving_features import WEIGHT_BYTES
from forerun.models.limit import Limit
from forerun.models.prediction import Estimate
from forerun.service.adaptation.in_use import InUse
from forerun.service.answers.answer import evidence_of, predictor_out
from forerun.service.limits.trust import trust_in
from forerun.service.limits.wording import in_words
from forerun.service.schemas.answers import (
    DeviceOut,
    GradedOut,
    LimitOut,
    ServingOut,
)

METRICS: Final[Mapping[str, tuple[str, ...]]] = {
    "llm_serving": ("power_w", "tokens_per_s", "energy_per_token_j"),
    "diffusion": ("power_w", "latency_ms", "samples_per_s", "energy_per_sample_j"),
}
"""Kind of workload -> metrics that are answered."""
MISSING: Final = {"peak_memory_mib": "no memory was measured of models that serve"}


def estimated(query: Query, in_use: InUse) -> ServingOut:
    """Predict a serving workload in steady state.

    Raises:
        UnanswerableQuery: no predictor in use answers the query, or the answer is not finite.
    """
    # Absurd sheets and sizes overflow here; answers that are not finite are rejected below.
    with np.errstate(all="ignore"):
        prediction = in_use.loaded.predictor.predict([query])[0]
    asked = METRICS[query.workload.kind]
    known = {name: prediction.estimates[name] for name in asked if name in prediction.estimates}
    if not known and prediction.withheld:
        raise UnanswerableQuery(f"Nothing is answered: {next(iter(prediction.withheld.values()))}.")
    if not known or not all(isfinite(estimate.value) for estimate in known.values()):
        raise UnanswerableQuery(
            "The answer is beyond every number; check the sizes and the figures of the spec sheet."
        )
    limits = [*map(in_words, prediction.limits), *_too_heavy(query)]
    evidence = evidence_of(query, known, in_use)
    trust = {name: trust_in(name, known, query, limits, evidence) for name in known}
    return ServingOut(
        metrics={
            name: GradedOut(
                value=estimate.value,
                low=estimate.low,
                high=_enforced(name, estimate, query.device.tdp_w),
                coverage=estimate.coverage,
                unit=metric(name).unit,
                grade=trust[name].grade,
                grade_reason=trust[name].reason,
            )
            for name, estimate in known.items()
        },
        missing={**MISSING, **{n: why for n, why in prediction.withheld.items() if n in asked}},
        in_domain=all(limit.in_domain for limit in limits),
        limits=[str(limit) for limit in limits],
        limit_details=[LimitOut.of(limit) for limit in limits],
        device=DeviceOut(name=query.device.name, origin=query.device.origin),
        device_count=query.operation.device_count,
        predictor=predictor_out(in_use, in_use.rows.get(query.device, 0)),
    )


def _enforced(name: str, estimate: Estimate, tdp_w: float | None) -> float | None:
    """The upper end of the interval; average power is capped at the device's design power."""
    if name != "power_w" or tdp_w is None or estimate.high is None:
        return estimate.high
    return max(estimate.value, min(estimate.high, tdp_w))


def _too_heavy(query: Query) -> list[Limit]:
    """A limit where the weights alone exceed the memory of all devices."""
    model, count = query.workload, query.operation.device_count
    if not isinstance(model, LlmServing | Diffusion) or query.device.memory_gib is None:
        return []
    weights = model.total_parameters if isinstance(model, LlmServing) else model.parameters
    taken, held = weights * WEIGHT_BYTES[model.weights] / 2**30, count * query.device.memory_gib
    if taken <= held:
        return []
    message = f"weights alone take {taken:,.0f} GiB, the devices have {held:,.0f}: it cannot run"
    return [Limit(message, severity="refusal")]
