"""POST /v1/rank, /v1/power/sweep, /v1/colocation and /v1/circuit: questions beyond predictions."""

from collections.abc import Callable
from typing import TypeVar

from fastapi import APIRouter, Response
from pydantic import BaseModel

from forerun.data.circuits.yosys import NetlistIn
from forerun.data.errors import in_field
from forerun.data.query import Query
from forerun.models.artifact.sealed_folder import LoadedPredictor
from forerun.service.answers import colocation as answered
from forerun.service.answers.circuits import timing_of
from forerun.service.answers.ranking import swept
from forerun.service.answers.sweep_picture import sweep_picture
from forerun.service.http.answers import Answers
from forerun.service.http.limits import JsonRoute
from forerun.service.http.rank_requests import rank_of
from forerun.service.http.schemas import RankIn, SweepIn
from forerun.service.http.state import State, TheAnswers, TheState
from forerun.service.schemas.answers import RankOut, SweepOut
from forerun.service.schemas.circuits import CircuitOut
from forerun.service.schemas.colocation import (
    ColocationIn,
    ColocationOut,
    HostsIn,
    HostsOut,
    NowIn,
    NowOut,
)
from forerun.service.schemas.workloads import operation_of, usual_software, workload_of

router = APIRouter(prefix="/v1", route_class=JsonRoute)


@router.post("/rank", tags=["rank"], response_model=RankOut)
async def rank(asked: RankIn, answers: TheAnswers, state: TheState) -> Response:
    """Devices that meet the limits, ranked by an objective, and why the others do not."""
    content = await state.run(lambda: rank_of(asked, answers).model_dump_json())
    return Response(content, media_type="application/json")


@router.post("/power/sweep", tags=["power"], response_model=SweepOut)
async def power_sweep(asked: SweepIn, answers: TheAnswers, state: TheState) -> Response:
    """Time, power and energy of one workload at several power limits, with advised limits."""
    return Response(await state.run(lambda: _swept(asked, answers)), media_type="application/json")


def sweep_of(asked: SweepIn, answers: Answers) -> SweepOut:
    """The sweep that a request asks for, with a picture where it asks for one."""
    with in_field("workload"):
        workload = workload_of(asked.workload, answers.graphs.get)
    with in_field("device"):
        device = answers.device(asked.device)
    software = usual_software(asked.software, workload, device)
    query = Query(workload, device, software, operation_of(workload), asked.level)
    sweep = swept(query, asked.limits_w, asked.slow_down, answers.adaptation.current())
    return sweep.model_copy(update={"picture": sweep_picture(sweep)}) if asked.picture else sweep


def _swept(asked: SweepIn, answers: Answers) -> bytes:
    return sweep_of(asked, answers).model_dump_json().encode()


Asked = TypeVar("Asked", ColocationIn, HostsIn, NowIn)


@router.post("/colocation", tags=["colocation"], response_model=ColocationOut)
async def colocation(asked: ColocationIn, answers: TheAnswers, state: TheState) -> Response:
    """Relative speed of a program to be placed on a host, and of every resident program."""
    return await _answered(answered.colocate, asked, answers, state)


@router.post("/colocation/rank", tags=["colocation"], response_model=HostsOut)
async def rank_hosts(asked: HostsIn, answers: TheAnswers, state: TheState) -> Response:
    """Rank hosts for a program by predicted relative speed."""
    return await _answered(answered.rank, asked, answers, state)


@router.post("/colocation/now", tags=["colocation"], response_model=NowOut)
async def colocation_now(asked: NowIn, answers: TheAnswers, state: TheState) -> Response:
    """Current relative speed of a program next to its neighbours, from metrics of its host."""
    return await _answered(answered.now, asked, answers, state)


async def _answered(
    answer: Callable[[Asked, LoadedPredictor], BaseModel],
    asked: Asked,
    answers: Answers,
    state: State,
) -> Response:
    """The answer as JSON, which a worker thread makes; it may have to adapt the predictor first."""

    def work() -> bytes:
        loaded = answers.adaptation.current().loaded
        return answer(asked, loaded).model_dump_json().encode()

    return Response(await state.run(work), media_type="application/json")


@router.post("/circuit", tags=["circuits"])
async def circuit(netlist: NetlistIn, answers: TheAnswers, state: TheState) -> CircuitOut:
    """Highest frequency, critical path and resources of a netlist on an iCE40 HX8K.

    The body is the netlist as yosys writes it: `yosys -p "synth_ice40 -top MODULE -json FILE"`.
    """
    return await state.run(lambda: timing_of(netlist, answers.adaptation.current()))
