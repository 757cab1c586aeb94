"""Answers as doors give them: to questions, and about serving generative models by their sizes."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from forerun.data.columns import groups_of
from forerun.data.device import Device
from forerun.data.errors import InputError, UnanswerableQuery
from forerun.data.level import USUAL
from forerun.data.metrics import metric
from forerun.data.query import Query
from forerun.models.answers.answer import PEAK, Answer, Asked
from forerun.models.answers.answer import answers_to as whole_answers_to
from forerun.models.answers.deployments.answer import Deployed, deployed_all
from forerun.models.answers.served_models import OF_SERVING, InUse
from forerun.models.answers.trust import Trust
from forerun.models.limit import LATENCY, Limit
from forerun.models.prediction import Estimate
from forerun.service.answers.attribution import attribution_of
from forerun.service.answers.question import Question
from forerun.service.schemas.answers import (
    DeviceOut,
    EstimateOut,
    GradedOut,
    LimitOut,
    PredictionOut,
    PredictorOut,
    ServingOut,
    bound_dimensions,
    fits,
    power_facts,
)

OF_MEMORY: Final = ("weights", "cache", "activations", "overhead")
"""What the memory of a deployment consists of."""
MISSING: Final = {
    "peak_memory_mib": "memory is answered for a model by name or config with lengths of requests "
    "(input_tokens, output_tokens)"
}
DIFFUSION_MISSING: Final = {"peak_memory_mib": "no memory was measured of diffusion models"}


def answer_of(question: Question, in_use: InUse) -> PredictionOut:
    """The answer to one question.

    Raises:
        UnknownBandwidth: the device has no spec sheet, and no predictor answers its memory either.
        UnanswerableQuery, UnknownPrecision: no predictor can answer.
    """
    (answer,) = answers_to([question], in_use)
    if isinstance(answer, InputError):
        raise answer
    return answer


def answers_to(questions: Sequence[Question], in_use: InUse) -> list[PredictionOut | InputError]:
    """The answer to each question, or the error that prevents one."""
    outcomes: dict[int, PredictionOut | InputError] = {}
    by_form = groups_of(q.query.workload.kind == "llm_deployment" for q in questions)
    for is_deployed, rows in by_form.items():
        answer = _deployments if is_deployed else _runs
        outcomes |= zip(rows, answer([questions[row] for row in rows], in_use), strict=True)
    return [outcomes[row] for row in range(len(questions))]


def _runs(questions: Sequence[Question], in_use: InUse) -> list[PredictionOut | InputError]:
    asked = [Asked(q.query, q.metrics, q.notes) for q in questions]
    return [
        own if isinstance(own, InputError) else _of_run(question, own, in_use)
        for question, own in zip(questions, whole_answers_to(asked, in_use), strict=True)
    ]


def _of_run(question: Question, own: Answer, in_use: InUse) -> PredictionOut:
    query, peak = own.query, own.estimates.get(PEAK)
    return PredictionOut(
        **rendered(query, own.limits, in_use, question.query.device),
        metrics=_estimates(question, own, own.in_domain),
        missing=dict(own.missing),
        fits=fits(query, peak),
        power=power_facts(query, own.estimates.get("energy_j")),
        breakdown_ms=dict(own.breakdown_ms),
        breakdown_mib=dict(own.breakdown_mib),
        attribution=attribution_of(query, own.breakdown_ms, own.estimates, in_use.loaded.predictor)
        if question.explain
        else None,
        roofline={} if own.bound_ms is None else {LATENCY: own.bound_ms},
        unknown_operators=dict(own.unknown_operators),
        bound_dimensions=bound_dimensions(query.workload),
        graph=question.graph,
    )


def _deployments(questions: Sequence[Question], in_use: InUse) -> list[PredictionOut | InputError]:
    queries = [question.query for question in questions]
    prices = [question.usd_per_device_hour for question in questions]
    return [
        own if isinstance(own, InputError) else _of_deployment(question, own, in_use)
        for question, own in zip(questions, deployed_all(queries, in_use, prices), strict=True)
    ]


def _of_deployment(question: Question, own: Deployed, in_use: InUse) -> PredictionOut:
    """What is known of a deployment in the form of POST /v1/predict."""

    def in_domain(name: str) -> bool:
        return all(limit.in_domain for limit in own.limits if limit.concerns(name))

    memory = own.memory[-1:]
    return PredictionOut(
        **rendered(own.query, [*own.limits, *question.notes], in_use),
        metrics=_estimates(question, own, in_domain),
        missing={n: why for n, why in own.missing.items() if n in question.metrics},
        fits=None,
        power=power_facts(own.query, None),
        breakdown_ms={},
        breakdown_mib={name: getattr(each, f"{name}_mib") for each in memory for name in OF_MEMORY},
        roofline={},
        unknown_operators={},
        bound_dimensions=[],
        graph=None,
    )


def _estimates(
    question: Question, own: Answer | Deployed, in_domain: Callable[[str], bool]
) -> dict[str, EstimateOut | None]:
    """The requested metrics with their grades; None for those that are not known."""
    found: dict[str, EstimateOut | None] = dict.fromkeys(question.metrics)
    for name in question.metrics:
        if name in own.estimates and name in own.trust:
            estimate = own.estimates[name]
            is_memory = isinstance(own, Answer) and name.endswith("_mib")
            is_memory = is_memory and own.query.level == USUAL
            found[name] = EstimateOut(
                **dict(graded(name, estimate, own.trust[name])),
                p95=estimate.high if is_memory and estimate.coverage is not None else None,
                in_domain=in_domain(name),
            )
    return found


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
        for own in whole_answers_to(asked, in_use)
    ]


def _served(own: Answer, in_use: InUse) -> ServingOut | InputError:
    if not own.trust:
        refused = [limit.message for limit in own.limits if limit.severity == "refusal"]
        why = next(iter((*refused, *own.missing.values())))
        return UnanswerableQuery(f"Nothing is answered: {why}.")
    query = own.query
    usual = DIFFUSION_MISSING if query.workload.kind == "diffusion" else MISSING
    return ServingOut(
        **rendered(query, own.limits, in_use),
        metrics={
            name: graded(name, own.estimates[name], trust) for name, trust in own.trust.items()
        },
        missing={**usual, **own.missing},
        device_count=query.operation.device_count,
    )


def rendered(
    query: Query, limits: Sequence[Limit], in_use: InUse, measured: Device | None = None
) -> dict[str, Any]:
    """What every answer says of its limits, its device and the predictor.

    Args:
        query: what was answered.
        limits: its limits.
        in_use: the predictor in use.
        measured: the device whose measurements are counted; that of the query when None.
    """
    device = query.device
    return {
        "in_domain": all(limit.in_domain for limit in limits),
        "limits": [str(limit) for limit in limits],
        "limit_details": [LimitOut.of(limit) for limit in limits],
        "level": query.level,
        "device": DeviceOut(name=device.name, origin=device.origin),
        "predictor": predictor_out(in_use, in_use.rows.get(measured or device, 0)),
    }


def predictor_out(in_use: InUse, adapted_rows: int) -> PredictorOut:
    """The predictor in use, and the number of measurements that it was adapted to."""
    loaded = in_use.loaded
    return PredictorOut(
        name=loaded.predictor.name, version=loaded.version, adapted_rows=adapted_rows
    )


def graded(name: str, estimate: Estimate, trust: Trust) -> GradedOut:
    """An estimate of a metric with its unit and grade."""
    own = {"unit": metric(name).unit, "grade": trust.grade, "grade_reason": trust.reason}
    return GradedOut.filled(estimate, **own)
