"""GET /v1/models: the predictors in use."""

from fastapi import APIRouter

from forerun.models.predictor import Predictor
from forerun.service.http.state import TheAnswers, TheState
from forerun.service.schemas.prediction import ModelOut, ModelsOut

router = APIRouter(prefix="/v1/models", tags=["models"])


@router.get("")
async def models(answers: TheAnswers, state: TheState) -> ModelsOut:
    """The predictors in use, with their model cards."""
    loaded = (await state.run(answers.adaptation.current)).loaded
    parts: tuple[Predictor, ...] = getattr(loaded.predictor, "parts", ())
    return ModelsOut(
        models=[
            ModelOut(
                name=loaded.predictor.name,
                version=loaded.version,
                created=loaded.created,
                metrics=list(loaded.predictor.metrics),
                parts=[part.name for part in parts],
                card=loaded.card,
            )
        ],
        trial=await state.run(answers.trial.report),
    )
