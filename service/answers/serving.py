"""Answers about serving generative models: power, throughput, energy per token or sample."""

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from typing import Final

from forerun.data.errors import InputError, UnanswerableQuery
from forerun.data.metrics import metric
from forerun.data.query import Query
from forerun.models.answers.asking import predicted
from forerun.models.answers.evidence import evidence_of
from forerun.models.answers.in_use import InUse
from forerun.models.answers.served_models import OF_SERVING, too_heavy, within_sheet
from forerun.models.answers.trust import Trust, trust_in
from forerun.models.answers.wording import in_words
from forerun.models.limit import POWER
from forerun.models.prediction import Estimate, Prediction
from forerun.service.answers.predictor_out import predictor_out
from forerun.service.schemas.answers import (
    DeviceOut,
    GradedOut,
    LimitOut,
    ServingOut,
)

MISSING: Final = {
    "peak_memory_mib": "memory is answered for a model by name or config with lengths of requests "
    "(input_tokens, output_tokens)"
}
DIFFUSION_MISSING: Final = {"peak_memory_mib": "no memory was measured of diffusion models"}


def estimated(query: Query, in_use: InUse) -> ServingOut:
    """Predict a serving workload in steady state.

    Raises:
        UnanswerableQuery: no predictor in use answers the query, or the answer is not finite.
    """
    (answer,) = estimated_all([query], in_use)
    if isinstance(answer, InputError):
        raise answer
    return answer


def estimated_all(queries: Sequence[Query], in_use: InUse) -> list[ServingOut | InputError]:
    """The answer to each query, or the error that prevents one; all are predicted in one call."""
    return [
        prediction if isinstance(prediction, InputError) else _served(query, prediction, in_use)
        for query, prediction in zip(
            queries, predicted(in_use.loaded.predictor, queries), strict=True
        )
    ]


def _served(query: Query, prediction: Prediction, in_use: InUse) -> ServingOut | InputError:
    asked = OF_SERVING[query.workload.kind]
    estimates = within_sheet(prediction.estimates, query)
    known = {name: estimates[name] for name in asked if name in estimates}
    if not known and prediction.withheld:
        why = next(iter(prediction.withheld.values()))
        return UnanswerableQuery(f"Nothing is answered: {why}.")
    if not known or not all(isfinite(estimate.value) for estimate in known.values()):
        return UnanswerableQuery(
            "The answer is beyond every number; check the sizes and the figures of the spec sheet."
        )
    limits = [*map(in_words, prediction.limits), *too_heavy(query)]
    evidence = evidence_of(query, known, in_use)
    of_power = [replace(limit, metric=POWER) for limit in limits]
    trust = {
        name: trust_in(name, known, query, of_power if name == POWER else limits, evidence)
        for name in known
    }
    usual = DIFFUSION_MISSING if query.workload.kind == "diffusion" else MISSING
    return ServingOut(
        metrics={name: graded(name, known[name], trust[name]) for name in known},
        missing={**usual, **{n: why for n, why in prediction.withheld.items() if n in asked}},
        in_domain=all(limit.in_domain for limit in limits),
        limits=[str(limit) for limit in limits],
        limit_details=[LimitOut.of(limit) for limit in limits],
        device=DeviceOut(name=query.device.name, origin=query.device.origin),
        device_count=query.operation.device_count,
        predictor=predictor_out(in_use, in_use.rows.get(query.device, 0)),
    )


def graded(name: str, estimate: Estimate, trust: Trust) -> GradedOut:
    """An estimate of a metric with its unit and grade."""
    return GradedOut(
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        coverage=estimate.coverage,
        unit=metric(name).unit,
        grade=trust.grade,
        grade_reason=trust.reason,
    )
