"""POST /v1/colocation: predict how programs on one host slow each other down."""

from fastapi import APIRouter

from forerun.service.answers import colocation as answered
from forerun.service.http.json_bodies import JsonRoute
from forerun.service.http.state import TheAnswers, TheState
from forerun.service.schemas.colocation import (
    ColocationIn,
    ColocationOut,
    HostsIn,
    HostsOut,
    NowIn,
    NowOut,
)

router = APIRouter(prefix="/v1/colocation", tags=["colocation"], route_class=JsonRoute)


@router.post("")
async def colocation(asked: ColocationIn, answers: TheAnswers, state: TheState) -> ColocationOut:
    """Relative speed of a program to be placed on a host, and of every resident program."""
    return await state.run(lambda: answered.colocate(asked, answers.adaptation.current().loaded))


@router.post("/rank")
async def rank_hosts(asked: HostsIn, answers: TheAnswers, state: TheState) -> HostsOut:
    """Rank hosts for a program by predicted relative speed."""
    return await state.run(lambda: answered.rank(asked, answers.adaptation.current().loaded))


@router.post("/now")
async def colocation_now(asked: NowIn, answers: TheAnswers, state: TheState) -> NowOut:
    """Current relative speed of a program next to its neighbours, from metrics of its host."""
    return await state.run(lambda: answered.now(asked, answers.adaptation.current().loaded))
