"""Answers about deployed language models in the form of POST /v1/predict."""

from collections.abc import Sequence

from forerun.data.errors import InputError
from forerun.models.answers.deployments.answer import Deployed, deployed_all
from forerun.models.answers.served_models import InUse
from forerun.service.answers.predictor_out import predictor_out
from forerun.service.answers.question import Question
from forerun.service.answers.serving import graded
from forerun.service.schemas.answers import (
    DeviceOut,
    EstimateOut,
    LimitOut,
    PredictionOut,
    power_facts,
)


def predictions_of(
    questions: Sequence[Question], in_use: InUse
) -> list[PredictionOut | InputError]:
    """The answer to each question about a deployment, or the error that prevents one."""
    queries = [question.query for question in questions]
    prices = [question.usd_per_device_hour for question in questions]
    return [
        own if isinstance(own, InputError) else _out(question, own, in_use)
        for question, own in zip(questions, deployed_all(queries, in_use, prices), strict=True)
    ]


def _out(question: Question, own: Deployed, in_use: InUse) -> PredictionOut:
    device = own.query.device
    limits = [*own.limits, *question.notes]
    memory = own.memory[-1:]
    mebibytes = {
        name: getattr(each, f"{name}_mib")
        for each in memory
        for name in ("weights", "cache", "activations", "overhead")
    }
    return PredictionOut(
        metrics={name: _estimate(name, own) for name in question.metrics},
        missing={n: why for n, why in own.missing.items() if n in question.metrics},
        in_domain=all(limit.in_domain for limit in limits),
        limits=[str(limit) for limit in limits],
        limit_details=[LimitOut.of(limit) for limit in limits],
        fits=None,
        power=power_facts(own.query, None),
        breakdown_ms={},
        breakdown_mib=mebibytes,
        roofline={},
        unknown_operators={},
        bound_dimensions=[],
        device=DeviceOut(name=device.name, origin=device.origin),
        graph=None,
        predictor=predictor_out(in_use, in_use.rows.get(device, 0)),
    )


def _estimate(name: str, own: Deployed) -> EstimateOut | None:
    """The estimate of a metric with its grade; None where it is not known."""
    estimate = own.estimates.get(name)
    if estimate is None:
        return None
    return EstimateOut(
        **dict(graded(name, estimate, own.trust[name])),
        p95=None,
        in_domain=all(limit.in_domain for limit in own.limits if limit.concerns(name)),
    )
