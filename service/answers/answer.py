"""Answers to questions, as doors give them."""

from collections.abc import Sequence

from forerun.data.columns import groups_of
from forerun.data.errors import InputError
from forerun.models.answers.answer import PEAK, Answer, Asked
from forerun.models.answers.answer import answers_to as whole_answers_to
from forerun.models.answers.served_models import InUse
from forerun.models.limit import LATENCY
from forerun.service.answers.attribution import attribution_of
from forerun.service.answers.llm.predictions import predictions_of
from forerun.service.answers.predictor_out import predictor_out
from forerun.service.answers.question import Question
from forerun.service.answers.serving import graded
from forerun.service.schemas.answers import (
    DeviceOut,
    EstimateOut,
    LimitOut,
    PredictionOut,
    bound_dimensions,
    fits,
    power_facts,
)


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
    for deployed, rows in by_form.items():
        answer = predictions_of if deployed else _runs
        outcomes |= zip(rows, answer([questions[row] for row in rows], in_use), strict=True)
    return [outcomes[row] for row in range(len(questions))]


def _runs(questions: Sequence[Question], in_use: InUse) -> list[PredictionOut | InputError]:
    asked = [Asked(q.query, q.metrics, q.notes) for q in questions]
    return [
        own if isinstance(own, InputError) else _out(question, own, in_use)
        for question, own in zip(questions, whole_answers_to(asked, in_use), strict=True)
    ]


def _out(question: Question, own: Answer, in_use: InUse) -> PredictionOut:
    query, peak = own.query, own.estimates.get(PEAK)
    return PredictionOut(
        metrics={name: _estimate(name, own) for name in question.metrics},
        missing=dict(own.missing),
        in_domain=all(limit.in_domain for limit in own.limits),
        limits=[str(limit) for limit in own.limits],
        limit_details=[LimitOut.of(limit) for limit in own.limits],
        fits=fits(query.device, peak, calibrated=peak is not None and peak.coverage is not None),
        power=power_facts(query, own.estimates.get("energy_j")),
        breakdown_ms=dict(own.breakdown_ms),
        breakdown_mib=dict(own.breakdown_mib),
        attribution=attribution_of(query, own.breakdown_ms, own.estimates, in_use.loaded.predictor)
        if question.explain
        else None,
        roofline={} if own.bound_ms is None else {LATENCY: own.bound_ms},
        unknown_operators=dict(own.unknown_operators),
        bound_dimensions=bound_dimensions(query.workload),
        device=DeviceOut(name=query.device.name, origin=query.device.origin),
        graph=question.graph,
        predictor=predictor_out(in_use, in_use.rows.get(question.query.device, 0)),
    )


def _estimate(name: str, own: Answer) -> EstimateOut | None:
    if name not in own.trust:
        return None
    estimate, trust = own.estimates[name], own.trust[name]
    known = name.endswith("_mib") and estimate.coverage is not None
    return EstimateOut(
        **dict(graded(name, estimate, trust)),
        p95=estimate.high if known else None,
        in_domain=own.in_domain(name),
    )
