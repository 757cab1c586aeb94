"""POST /v1/rank, /v1/power/sweep, /v1/colocation and /v1/circuit: questions beyond predictions."""

from collections.abc import Callable
from typing import TypeVar

from fastapi import APIRouter, Response
from pydantic import BaseModel

from forerun.data.circuits.yosys import NetlistIn
from forerun.data.device import Device
from forerun.data.errors import InputError, in_field
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Network
from forerun.models.artifact.sealed_folder import LoadedPredictor
from forerun.service.answers import colocation as answered
from forerun.service.answers.circuits import timing_of
from forerun.service.answers.power_sweep import swept
from forerun.service.answers.ranking import (
    RANKING_METRICS,
    Goal,
    Limits,
    Outcome,
    outcomes,
    prices_by_device,
    ranked,
)
from forerun.service.answers.sweep_picture import sweep_picture
from forerun.service.http.answers import Answers
from forerun.service.http.limits import JsonRoute
from forerun.service.http.schemas import MOST_RANKED, RankIn, SweepIn
from forerun.service.http.state import State, TheAnswers, TheState
from forerun.service.requests.record import stage
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


def rank_of(asked: RankIn, answers: Answers) -> RankOut:
    """The ranking that a request asks for; as `rank`, for the pages."""
    with stage("read"):
        queries, goal, limits = _resolved(asked, answers)
    with stage("predict"):
        return ranked(queries, goal, limits, answers.adaptation.current())


def outcomes_of(asked: RankIn, answers: Answers) -> dict[str, Outcome]:
    """Name of a device -> the device with its objective, or the reasons to exclude it."""
    queries, goal, limits = _resolved(asked, answers)
    return outcomes(queries, goal, limits, answers.predicted)


def queries_of(asked: RankIn, answers: Answers) -> list[Query]:
    """A query for each device, in the order of the request."""
    return _resolved(asked, answers)[0]


def _resolved(asked: RankIn, answers: Answers) -> tuple[list[Query], Goal, Limits]:
    with in_field("workload"):
        workload = workload_of(asked.workload, answers.graphs.get)
    devices = _devices(asked, answers)
    operation = operation_of(workload, asked.operation.power_limit_w)
    usual = [usual_software(asked.software, workload, device) for device in devices]
    # One object for all devices with equal software is compared by identity from here on.
    shared: dict[Software, Software] = {}
    queries = [
        Query(workload, device, shared.setdefault(software, software), operation, asked.level)
        for device, software in zip(devices, usual, strict=True)
    ]
    samples = workload.batch_size if isinstance(workload, Network) else 1
    prices = prices_by_device(asked.prices_per_hour, asked.objective, devices, answers.device)
    most = asked.limits.model_dump(include=set(RANKING_METRICS), exclude_none=True)
    limits = Limits(most, asked.limits.must_fit, asked.limits.in_domain_only, asked.risk)
    return queries, Goal(asked.objective, samples, prices), limits


def _devices(asked: RankIn, answers: Answers) -> list[Device]:
    """The candidate devices, without duplicates, in the order of the request."""
    if asked.devices is not None:
        return list(dict.fromkeys(_device(*named, answers) for named in enumerate(asked.devices)))
    catalog = list(answers.devices.catalog)
    if len(catalog) > MOST_RANKED:
        raise InputError(f"There are {len(catalog)} devices; name up to {MOST_RANKED} of them.")
    return catalog


def _device(position: int, given: str | Device, answers: Answers) -> Device:
    with in_field("devices", position):
        return answers.device(given)


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
