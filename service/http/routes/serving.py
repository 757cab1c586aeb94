"""POST /v1/llm/estimate and /v1/diffusion/estimate: power of serving generative models."""

from fastapi import APIRouter

from forerun.data.errors import in_field
from forerun.data.query import Operation, Query
from forerun.service.answers.serving import estimated
from forerun.service.http.answers import Answers
from forerun.service.http.json_bodies import JsonRoute
from forerun.service.http.state import TheAnswers, TheState
from forerun.service.schemas.answers import ServingOut
from forerun.service.schemas.serving import DiffusionEstimateIn, LlmEstimateIn, LlmIn

router = APIRouter(prefix="/v1", tags=["serving"], route_class=JsonRoute)


@router.post("/llm/estimate")
async def llm_estimate(asked: LlmEstimateIn, answers: TheAnswers, state: TheState) -> ServingOut:
    """Power, tokens per second and energy per token of a language model, in steady state."""
    return await state.run(lambda: serving_of(asked, answers))


@router.post("/diffusion/estimate")
async def diffusion_estimate(
    asked: DiffusionEstimateIn, answers: TheAnswers, state: TheState
) -> ServingOut:
    """Power, time per batch, samples per second and energy per sample, in steady state."""
    return await state.run(lambda: serving_of(asked, answers))


def serving_of(asked: LlmEstimateIn | DiffusionEstimateIn, answers: Answers) -> ServingOut:
    """The estimate that a request asks for."""
    with in_field("device"):
        device = answers.device(asked.device)
    operation = Operation(device_count=asked.device_count)
    with in_field("model"):
        query = Query(asked.model.workload(), device, operation=operation)
        sizes = asked.model.sizes() if isinstance(asked.model, LlmIn) else None
    answer = estimated(query, answers.adaptation.current())
    return answer if sizes is None else answer.model_copy(update={"model": sizes})
