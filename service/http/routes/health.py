"""Liveness, readiness and metrics."""

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from forerun.service.http.state import TheAnswers, TheState
from forerun.service.schemas.prediction import StatusOut

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> StatusOut:
    """Whether the process is alive."""
    return StatusOut(status="ok")


@router.get("/readyz")
async def readyz(answers: TheAnswers) -> StatusOut:
    """Whether the predictors are loaded; the status is 503 until they are."""
    return StatusOut(status="ok")


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(state: TheState) -> Response:
    """Counters and latencies in the text format of Prometheus."""
    return Response(generate_latest(state.telemetry.registry), media_type=CONTENT_TYPE_LATEST)
