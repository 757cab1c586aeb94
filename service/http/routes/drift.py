"""GET /v1/drift: live errors of the answers, and what changed on which device."""

from typing import Annotated

from fastapi import APIRouter, Query

from forerun.service.http.json_bodies import JsonRoute
from forerun.service.http.state import TheAnswers, TheState
from forerun.service.schemas.fields import LONGEST_NAME
from forerun.service.schemas.observations import DriftOut

router = APIRouter(prefix="/v1", tags=["measurements"], route_class=JsonRoute)


@router.get("/drift")
async def drift(
    answers: TheAnswers,
    state: TheState,
    device: Annotated[
        str | None, Query(description="name of a device; all when missing", max_length=LONGEST_NAME)
    ] = None,
    version: Annotated[
        str | None,
        Query(
            description="version of the predictors whose answers are scored, `all` for every one; "
            "those in use when missing",
            max_length=LONGEST_NAME,
        ),
    ] = None,
) -> DriftOut:
    """How good the answers were about what was observed, and which slices have changed since."""
    return await state.report(lambda: answers.report(device, version))
