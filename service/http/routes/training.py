"""POST /v1/training/estimate and /v1/training/plan: what training a language model takes."""

from typing import Annotated

from fastapi import APIRouter, Body

from forerun.service.answers.llm import training
from forerun.service.http.limits import JsonRoute
from forerun.service.http.state import TheAnswers
from forerun.service.schemas.llm.training import (
    ESTIMATE_EXAMPLES,
    TrainingEstimateIn,
    TrainingPlanIn,
)
from forerun.service.schemas.llm.training_answers import TrainingOut, TrainingPlanOut

router = APIRouter(prefix="/v1/training", tags=["training"], route_class=JsonRoute)


@router.post("/estimate")
def training_estimate(
    asked: Annotated[TrainingEstimateIn, Body(openapi_examples=ESTIMATE_EXAMPLES)],
    answers: TheAnswers,
) -> TrainingOut:
    """What a step of training a language model takes: time, memory, and what tokens cost."""
    return training.training_estimate(asked, answers.device, answers.adaptation.current())


@router.post("/plan")
def training_plan(asked: TrainingPlanIn, answers: TheAnswers) -> TrainingPlanOut:
    """The best layouts of training: which fit, what each costs, how often the first wins."""
    return training.training_plan(asked, answers.device, answers.adaptation.current())
