"""Answers about serving generative models: power, throughput, energy per token or sample."""

from math import isfinite
from typing import Final

import numpy as np

from forerun.data.errors import UnanswerableQuery
from forerun.data.metrics import metric
from forerun.data.query import Query
from forerun.service.adaptation.predictor_in_use import InUse
from forerun.service.answers.answer import evidence_of, predictor_out
from forerun.service.limits.serving import OF_SERVING, too_heavy, within_design_power
from forerun.service.limits.trust import trust_in
from forerun.service.limits.wording import in_words
from forerun.service.schemas.answers import (
    DeviceOut,
    GradedOut,
    LimitOut,
    ServingOut,
)

MISSING: Final = {"peak_memory_mib": "no memory was measured of models that serve"}


def estimated(query: Query, in_use: InUse) -> ServingOut:
    """Predict a serving workload in steady state.

    Raises:
        UnanswerableQuery: no predictor in use answers the query, or the answer is not finite.
    """
    # Absurd sheets and sizes overflow here; answers that are not finite are rejected below.
    with np.errstate(all="ignore"):
        prediction = in_use.loaded.predictor.predict([query])[0]
    asked = OF_SERVING[query.workload.kind]
    estimates = within_design_power(prediction.estimates, query)
    known = {name: estimates[name] for name in asked if name in estimates}
    if not known and prediction.withheld:
        raise UnanswerableQuery(f"Nothing is answered: {next(iter(prediction.withheld.values()))}.")
    if not known or not all(isfinite(estimate.value) for estimate in known.values()):
        raise UnanswerableQuery(
            "The answer is beyond every number; check the sizes and the figures of the spec sheet."
        )
    limits = [*map(in_words, prediction.limits), *too_heavy(query)]
    evidence = evidence_of(query, known, in_use)
    trust = {name: trust_in(name, known, query, limits, evidence) for name in known}
    return ServingOut(
        metrics={
            name: GradedOut(
                value=estimate.value,
                low=estimate.low,
                high=estimate.high,
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
