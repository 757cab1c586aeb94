"""POST /v1/llm/estimate and /v1/diffusion/estimate: what serving generative models takes."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Body, Response

from forerun.data.errors import InputError, in_field
from forerun.data.query import Operation, Query
from forerun.service.answers.answer import estimated
from forerun.service.answers.llm import estimates, planning
from forerun.service.answers.llm.replaying import replay_of
from forerun.service.answers.llm.support import support
from forerun.service.answers.question_list import answered_each, written
from forerun.service.http.limits import JsonRoute
from forerun.service.http.routes.predict import batch_of
from forerun.service.http.state import TheAnswers
from forerun.service.schemas.answers import ServingOut
from forerun.service.schemas.llm.answers import SupportOut
from forerun.service.schemas.llm.replay import LlmReplayIn, ReplayOut
from forerun.service.schemas.llm.serving_plan import LlmPlanIn
from forerun.service.schemas.llm.serving_plan_answers import LlmPlanOut
from forerun.service.schemas.prediction import BatchOut
from forerun.service.schemas.serving import (
    LLM_EXAMPLES,
    DiffusionEstimateIn,
    LlmBatchIn,
    LlmEstimateIn,
)

router = APIRouter(prefix="/v1", tags=["serving"], route_class=JsonRoute)


@router.post("/llm/estimate")
def llm_estimate(
    asked: Annotated[LlmEstimateIn, Body(openapi_examples=LLM_EXAMPLES)], answers: TheAnswers
) -> ServingOut:
    """What serving a language model takes: times, rates, memory, power, energy and price."""
    return estimates.llm_estimate(asked, answers.device, answers.adaptation.current())


@router.post("/llm/estimate:batch", response_model=BatchOut)
def llm_estimate_batch(asked: LlmBatchIn, answers: TheAnswers) -> Response:
    """Estimates of up to 1,000 requests, in order; an invalid one gets a problem of its own."""

    def estimated_all(valid: Sequence[LlmEstimateIn]) -> list[ServingOut | InputError]:
        return estimates.llm_estimates(valid, answers.device, answers.adaptation.current())

    given, read = dict(enumerate(asked.items)), LlmEstimateIn.model_validate
    return batch_of(map(written, answered_each("items", given, read, estimated_all, in_body=True)))


@router.post("/llm/replay")
def llm_replay(asked: LlmReplayIn, answers: TheAnswers) -> ReplayOut:
    """Percentiles of the times of a list of requests, and the rate at which they are served."""
    return replay_of(asked, answers.device, answers.adaptation.current())


@router.post("/llm/plan")
def llm_plan(asked: LlmPlanIn, answers: TheAnswers) -> LlmPlanOut:
    """What to serve a language model on: devices, layout and replicas within limits, and why."""
    return planning.llm_plan(asked, answers.device, answers.adaptation.current())


@router.get("/llm/support")
def llm_support(answers: TheAnswers) -> SupportOut:
    """Models by name, engines and formats; on which devices each metric was measured."""
    return support(answers.devices.catalog, answers.adaptation.current())


@router.post("/diffusion/estimate")
def diffusion_estimate(asked: DiffusionEstimateIn, answers: TheAnswers) -> ServingOut:
    """Power, time per batch, samples per second and energy per sample, in steady state."""
    with in_field("device"):
        device = answers.device(asked.device)
    operation = Operation(device_count=asked.device_count)
    query = Query(asked.model.workload(), device, operation=operation, level=asked.level)
    return estimated(query, answers.adaptation.current())
