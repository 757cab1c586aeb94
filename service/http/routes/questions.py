"""POST /v1/rank, /power/sweep, /pipeline, /colocation, /circuit: questions beyond predictions."""

from fastapi import APIRouter, Response
from pydantic import BaseModel

from forerun.data.circuits.yosys import NetlistIn
from forerun.data.errors import in_field
from forerun.data.query import Query
from forerun.service.answers import colocation as answered
from forerun.service.answers.circuits import timing_of
from forerun.service.answers.pipelines import pipeline as piped
from forerun.service.answers.ranking import swept
from forerun.service.answers.sweep_picture import sweep_picture
from forerun.service.http.answers import Answers
from forerun.service.http.limits import JsonRoute
from forerun.service.http.rank_requests import rank_of
from forerun.service.http.schemas import RankIn, SweepIn
from forerun.service.http.state import TheAnswers, json_response
from forerun.service.schemas import colocation as schemas
from forerun.service.schemas.answers import RankOut, SweepOut
from forerun.service.schemas.circuits import CircuitOut
from forerun.service.schemas.pipelines import PipelineIn, PipelineOut
from forerun.service.schemas.workloads import operation_of, usual_software, workload_of

router = APIRouter(prefix="/v1", route_class=JsonRoute)


@router.post("/rank", tags=["rank"], response_model=RankOut)
def rank(asked: RankIn, answers: TheAnswers) -> Response:
    """Devices that meet the limits, ranked by an objective, and why the others do not."""
    return _written(rank_of(asked, answers))


@router.post("/power/sweep", tags=["power"], response_model=SweepOut)
def power_sweep(asked: SweepIn, answers: TheAnswers) -> Response:
    """Time, power and energy of one workload at several power limits, with advised limits."""
    return _written(sweep_of(asked, answers))


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


@router.post("/pipeline", tags=["pipeline"], response_model=PipelineOut)
def pipeline(asked: PipelineIn, answers: TheAnswers) -> Response:
    """Rate, latency, power and bottleneck of stages with links, and with another device at one."""
    in_use = answers.adaptation.current()
    return _written(piped(asked, answers.device, answers.graphs.get, in_use))


@router.post("/colocation", tags=["colocation"], response_model=schemas.ColocationOut)
def colocation(asked: schemas.ColocationIn, answers: TheAnswers) -> Response:
    """Relative speed of a program to be placed on a host, and of every resident program."""
    return _written(answered.colocate(asked, answers.adaptation.current().loaded))


@router.post("/colocation/rank", tags=["colocation"], response_model=schemas.HostsOut)
def rank_hosts(asked: schemas.HostsIn, answers: TheAnswers) -> Response:
    """Rank hosts for a program by predicted relative speed."""
    return _written(answered.rank(asked, answers.adaptation.current().loaded))


@router.post("/colocation/now", tags=["colocation"], response_model=schemas.NowOut)
def colocation_now(asked: schemas.NowIn, answers: TheAnswers) -> Response:
    """Current relative speed of a program next to its neighbours, from metrics of its host."""
    return _written(answered.now(asked, answers.adaptation.current().loaded))


def _written(answer: BaseModel) -> Response:
    """The answer as JSON, which the thread makes that answers."""
    return json_response(answer.model_dump_json())


@router.post("/circuit", tags=["circuits"])
def circuit(netlist: NetlistIn, answers: TheAnswers) -> CircuitOut:
    """Highest frequency, critical path and resources of a netlist on an iCE40 HX8K.

    The body is the netlist as yosys writes it: `yosys -p "synth_ice40 -top MODULE -json FILE"`.
    """
    return timing_of(netlist, answers.adaptation.current())
