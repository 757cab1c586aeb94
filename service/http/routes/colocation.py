"""POST /v1/colocation: what programs on one host do to each other."""

from fastapi import APIRouter

from forerun.service.answers import colocation as answered
from forerun.service.http.state import TheAnswers, TheState
from forerun.service.schemas.colocation import (
    ColocationIn,
    ColocationOut,
    HostsIn,
    HostsOut,
    NowIn,
    NowOut,
)

router = APIRouter(prefix="/v1/colocation", tags=["colocation"])


@router.post("")
async def colocation(asked: ColocationIn, answers: TheAnswers, state: TheState) -> ColocationOut:
    """What a program that is to come, and every program that is there, would pay."""
    loaded = answers.adaptation.current().loaded
    found = await state.run(lambda: answered.colocate(asked, loaded))
    return ColocationOut.model_validate(found)


@router.post("/rank")
async def rank_hosts(asked: HostsIn, answers: TheAnswers, state: TheState) -> HostsOut:
    """Hosts for a program, the best first."""
    loaded = answers.adaptation.current().loaded
    return HostsOut.model_validate(await state.run(lambda: answered.rank(asked, loaded)))


@router.post("/now")
async def colocation_now(asked: NowIn, answers: TheAnswers, state: TheState) -> NowOut:
    """What a program pays for its neighbours now, from metrics of its host."""
    loaded = answers.adaptation.current().loaded
    return NowOut.model_validate(await state.run(lambda: answered.now(asked, loaded)))
