"""Liveness, readiness and metrics."""

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from forerun.data.file_store import HOME, obstacle
from forerun.service.http.state import TheAnswers, TheState
from forerun.service.schemas.prediction import StatusOut
from forerun.service.schemas.readiness import ReadyOut

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> StatusOut:
    """Whether the process is alive."""
    return StatusOut(status="ok")


@router.get("/readyz")
async def readyz(answers: TheAnswers, state: TheState) -> ReadyOut:
    """Whether questions are answered, and whether uploads and measurements are stored.

    The HTTP status is 503 until the predictors are loaded. A disk that is full or cannot be written
    does not change it.
    """
    problem = obstacle(state.settings.home, HOME)
    return ReadyOut(
        status="ok", storing=problem is None, not_storing=None if problem is None else str(problem)
    )


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(state: TheState) -> Response:
    """Counters and latencies in the text format of Prometheus."""
    return Response(generate_latest(state.telemetry.registry), media_type=CONTENT_TYPE_LATEST)
