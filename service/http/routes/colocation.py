"""POST /v1/colocation: predict how programs on one host slow each other down."""

from collections.abc import Callable
from typing import TypeVar

from fastapi import APIRouter, Response
from pydantic import BaseModel

from forerun.models.artifact.loading import LoadedPredictor
from forerun.service.answers import colocation as answered
from forerun.service.http.answers import Answers
from forerun.service.http.json_bodies import JsonRoute
from forerun.service.http.state import State, TheAnswers, TheState
from forerun.service.schemas.colocation import (
    ColocationIn,
    ColocationOut,
    HostsIn,
    HostsOut,
    NowIn,
    NowOut,
)

Asked = TypeVar("Asked", ColocationIn, HostsIn, NowIn)

router = APIRouter(prefix="/v1/colocation", tags=["colocation"], route_class=JsonRoute)


@router.post("", response_model=ColocationOut)
async def colocation(asked: ColocationIn, answers: TheAnswers, state: TheState) -> Response:
    """Relative speed of a program to be placed on a host, and of every resident program."""
    return await _answered(answered.colocate, asked, answers, state)


@router.post("/rank", response_model=HostsOut)
async def rank_hosts(asked: HostsIn, answers: TheAnswers, state: TheState) -> Response:
    """Rank hosts for a program by predicted relative speed."""
    return await _answered(answered.rank, asked, answers, state)


@router.post("/now", response_model=NowOut)
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
