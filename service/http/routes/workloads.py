"""GET /v1/workloads and GET /v1/presets: what can be asked, and questions to try first."""

from dataclasses import asdict

from fastapi import APIRouter

from forerun.service.answers.workload_list import workload_list
from forerun.service.http.state import TheAnswers, TheState
from forerun.service.presets import presets
from forerun.service.schemas.workload_list import PresetOut, PresetsOut, WorkloadsOut

router = APIRouter(prefix="/v1", tags=["workloads"])


@router.get("/workloads")
async def workloads(answers: TheAnswers, state: TheState) -> WorkloadsOut:
    """Kinds of workload with their fields, allowed values and a valid example of each."""
    return await state.run(lambda: workload_list(answers.adaptation.current().loaded.predictor))


@router.get("/presets", name="presets")
async def list_presets() -> PresetsOut:
    """Named questions of every kind of workload, each with the request that asks it."""
    return PresetsOut(presets=[PresetOut(**asdict(preset)) for preset in presets()])
