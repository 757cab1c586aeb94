"""POST /v1/llm/estimate and /v1/diffusion/estimate: what serving generative models takes."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Response
from pydantic import ValidationError

from forerun.data.errors import InputError, in_field
from forerun.data.query import Operation, Query
from forerun.service.answers.answer import estimated
from forerun.service.answers.llm import estimates, planning
from forerun.service.answers.llm.replaying import replay_of
from forerun.service.answers.llm.support import support
from forerun.service.http.answers import Answers
from forerun.service.http.limits import JsonRoute
from forerun.service.http.state import TheAnswers, TheState
from forerun.service.problems import content, problem_of, unfit
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
async def llm_estimate(
    asked: Annotated[LlmEstimateIn, Body(openapi_examples=LLM_EXAMPLES)],
    answers: TheAnswers,
    state: TheState,
) -> ServingOut:
    """What serving a language model takes: times, rates, memory, power, energy and price."""
    return await state.run(
        lambda: estimates.llm_estimate(asked, answers.device, answers.adaptation.current())
    )


@router.post("/llm/estimate:batch", response_model=BatchOut)
async def llm_estimate_batch(asked: LlmBatchIn, answers: TheAnswers, state: TheState) -> Response:
    """Estimates of up to 1,000 requests, in order; an invalid one gets a problem of its own."""
    listed = await state.run(lambda: b",".join(_items(asked.items, answers)))
    return Response(b'{"items":[' + listed + b"]}", media_type="application/json")


@router.post("/llm/replay")
async def llm_replay(asked: LlmReplayIn, answers: TheAnswers, state: TheState) -> ReplayOut:
    """Percentiles of the times of a list of requests, and the rate at which they are served."""
    return await state.run(lambda: replay_of(asked, answers.device, answers.adaptation.current()))


@router.post("/llm/plan")
async def llm_plan(asked: LlmPlanIn, answers: TheAnswers, state: TheState) -> LlmPlanOut:
    """What to serve a language model on: devices, layout and replicas within limits, and why."""
    return await state.run(
        lambda: planning.llm_plan(asked, answers.device, answers.adaptation.current())
    )


@router.get("/llm/support")
async def llm_support(answers: TheAnswers, state: TheState) -> SupportOut:
    """Models by name, engines and formats; on which devices each metric was measured."""
    return await state.run(lambda: support(answers.devices.catalog, answers.adaptation.current()))


@router.post("/diffusion/estimate")
async def diffusion_estimate(
    asked: DiffusionEstimateIn, answers: TheAnswers, state: TheState
) -> ServingOut:
    """Power, time per batch, samples per second and energy per sample, in steady state."""
    return await state.run(lambda: diffusion_of(asked, answers))


def diffusion_of(asked: DiffusionEstimateIn, answers: Answers) -> ServingOut:
    """The estimate that a request about a diffusion model asks for."""
    with in_field("device"):
        device = answers.device(asked.device)
    operation = Operation(device_count=asked.device_count)
    query = Query(asked.model.workload(), device, operation=operation, level=asked.level)
    return estimated(query, answers.adaptation.current())


def _items(items: list[Any], answers: Answers) -> list[bytes]:
    """The estimate of each request of a batch, or its problem document."""
    contents: dict[int, bytes] = {}
    asked: dict[int, LlmEstimateIn] = {}
    for index, item in enumerate(items):
        try:
            asked[index] = LlmEstimateIn.model_validate(item)
        except ValidationError as error:
            body, at = {"items": {index: item}}, ("body", "items", index)
            contents[index] = content(unfit(error.errors(), f"/items/{index}", body, at))
    found = estimates.llm_estimates(
        list(asked.values()), answers.device, answers.adaptation.current()
    )
    for index, outcome in zip(asked, found, strict=True):
        contents[index] = (
            content(problem_of(outcome, f"/items/{index}", ("items", index)))
            if isinstance(outcome, InputError)
            else outcome.model_dump_json().encode()
        )
    return [contents[index] for index in range(len(items))]
