"""POST /v1/power/sweep: the trade-off of time and energy over power limits."""

from fastapi import APIRouter, Response

from forerun.data.errors import in_field
from forerun.data.query import Query
from forerun.service.answers.power_sweep import swept
from forerun.service.answers.sweep_picture import sweep_picture
from forerun.service.http.answers import Answers
from forerun.service.http.json_bodies import JsonRoute
from forerun.service.http.schemas.power_sweep import SweepIn
from forerun.service.http.state import TheAnswers, TheState
from forerun.service.schemas.answers import SweepOut
from forerun.service.schemas.workloads import operation_of, usual_software, workload_of

router = APIRouter(prefix="/v1", tags=["power"], route_class=JsonRoute)


@router.post("/power/sweep", response_model=SweepOut)
async def power_sweep(asked: SweepIn, answers: TheAnswers, state: TheState) -> Response:
    """Time, power and energy of one workload at several power limits, with advised limits."""
    return Response(
        await state.run(lambda: _content(asked, answers)), media_type="application/json"
    )


def sweep_of(asked: SweepIn, answers: Answers) -> SweepOut:
    """The sweep that a request asks for, with a picture where it asks for one."""
    with in_field("workload"):
        workload = workload_of(asked.workload, answers.graphs.get)
    with in_field("device"):
        device = answers.device(asked.device)
    software = usual_software(asked.software, workload, device)
    query = Query(workload, device, software, operation_of(workload))
    sweep = swept(query, asked.limits_w, asked.slow_down, answers.adaptation.current())
    return sweep.model_copy(update={"picture": sweep_picture(sweep)}) if asked.picture else sweep


def _content(asked: SweepIn, answers: Answers) -> bytes:
    return sweep_of(asked, answers).model_dump_json().encode()
