"""Answers about serving generative models: power, throughput, energy per token or sample."""

from collections.abc import Sequence
from typing import Final

from forerun.data.errors import InputError, UnanswerableQuery
from forerun.data.metrics import metric
from forerun.data.query import Query
from forerun.models.answers.answer import Answer, Asked, answers_to
from forerun.models.answers.served_models import OF_SERVING, InUse
from forerun.models.answers.trust import Trust
from forerun.models.prediction import Estimate
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
    asked = [Asked(query, OF_SERVING[query.workload.kind]) for query in queries]
    return [
        own if isinstance(own, InputError) else _served(own, in_use)
        for own in answers_to(asked, in_use)
    ]


def _served(own: Answer, in_use: InUse) -> ServingOut | InputError:
    if not own.trust:
        why = next(iter(own.missing.values()))
        return UnanswerableQuery(f"Nothing is answered: {why}.")
    query = own.query
    usual = DIFFUSION_MISSING if query.workload.kind == "diffusion" else MISSING
    return ServingOut(
        metrics={
            name: graded(name, own.estimates[name], trust) for name, trust in own.trust.items()
        },
        missing={**usual, **own.missing},
        in_domain=all(limit.in_domain for limit in own.limits),
        limits=[str(limit) for limit in own.limits],
        limit_details=[LimitOut.of(limit) for limit in own.limits],
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
