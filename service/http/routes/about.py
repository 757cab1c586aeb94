"""What the service says of itself: liveness, metrics, predictors, scores, kinds of workload."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.core import GaugeMetricFamily, Metric

from forerun import __version__
from forerun.data.errors import InputError
from forerun.models.predictor import Predictor
from forerun.service.answers.workload_list import workload_list
from forerun.service.champion import kept
from forerun.service.http.monitoring.gauges import metrics_of, process_metrics
from forerun.service.http.state import State, TheAnswers, TheState, ThreadRoute
from forerun.service.presets import presets
from forerun.service.schemas.listings import (
    PresetsOut,
    ReadyOut,
    RegistryOut,
    WorkloadsOut,
)
from forerun.service.schemas.prediction import (
    EntryOut,
    LeaderboardOut,
    ModelOut,
    ModelsOut,
    StatusOut,
)
from forerun.service.stores.places import database_of

REPORT_S = 2.0
"""Time that metrics wait for a report of new observations, seconds."""

health = APIRouter(tags=["health"])


@health.head("/healthz", include_in_schema=False)
@health.get("/healthz")
async def healthz() -> StatusOut:
    """Whether the process is alive."""
    return StatusOut(status="ok")


@health.head("/readyz", include_in_schema=False)
@health.get("/readyz")
async def readyz(answers: TheAnswers, state: TheState) -> ReadyOut:
    """Whether questions are answered, and whether uploads and measurements are stored.

    The HTTP status is 503 until the predictors are loaded. It is 200 even if the disk is full or
    read-only, or the database unavailable: questions are answered from memory.
    """
    problem = database_of(state.settings).problem
    said = kept(state.settings)
    return ReadyOut(
        status="ok",
        storing=problem is None,
        not_storing=None if problem is None else str(problem),
        version=answers.adaptation.version,
        registry=said
        and RegistryOut(version=said.version, asked=said.asked, answered=said.problem is None),
    )


@health.get("/metrics", response_class=PlainTextResponse)
async def metrics(state: TheState) -> Response:
    """Counters and latencies of all processes in the text format of Prometheus."""
    if state.answers is not None:
        # Where a report takes longer, it goes on, and the metrics are those of the last one.
        with suppress(InputError, TimeoutError):
            await asyncio.wait_for(state.report(state.answers.report), REPORT_S)
    stored: list[Metric] = []
    with suppress(InputError, TimeoutError):
        stored = await asyncio.wait_for(
            state.report(lambda: list(state.stores.metrics())), REPORT_S
        )
    content = state.telemetry.exposition([*_facts(state), *stored])
    return Response(content, media_type=CONTENT_TYPE_LATEST)


def _facts(state: State) -> Iterator[Metric]:
    """What all processes agree on: their versions, what the database and registry said."""
    yield _versioned("forerun_build_info", "Version of forerun", __version__)
    yield from process_metrics()
    if state.answers is not None:
        version = state.answers.adaptation.version
        yield _versioned("forerun_predictor_info", "Predictor in use", version)
        yield from metrics_of(state.answers.drift.last())
    said = kept(state.settings)
    known: dict[tuple[str, str], float] = {}
    if state.settings.database_url is not None:
        text = "Whether the database answered last time"
        answered = database_of(state.settings).problem is None
        known["forerun_database_answered", text] = answered
    if said is not None:
        text = "Whether the registry answered last time"
        known["forerun_registry_answered", text] = said.problem is None
        text = "When the registry was asked last"
        known["forerun_registry_asked_timestamp_seconds", text] = said.asked.timestamp()
    for (name, text), value in known.items():
        yield GaugeMetricFamily(name, text, float(value))


def _versioned(name: str, text: str, version: str) -> Metric:
    """A metric of the value 1, whose label is a version."""
    family = GaugeMetricFamily(name, text, labels=("version",))
    family.add_metric((version,), 1)
    return family


router = APIRouter(prefix="/v1", route_class=ThreadRoute)


@router.get("/models", tags=["models"])
def models(answers: TheAnswers) -> ModelsOut:
    """The predictors in use, with their model cards."""
    loaded = answers.adaptation.current().loaded
    parts: tuple[Predictor, ...] = getattr(loaded.predictor, "parts", ())
    return ModelsOut(
        models=[
            ModelOut.filled(
                loaded,
                name=loaded.predictor.name,
                metrics=loaded.predictor.metrics,
                parts=[part.name for part in parts],
            )
        ],
        trial=answers.trial.report(),
    )


@router.get("/leaderboard", tags=["models"])
def leaderboard(
    state: TheState,
    dataset: Annotated[list[str], Query(description="only these datasets; may be repeated")] = [],  # noqa: B006
) -> LeaderboardOut:
    """Stored scores of predictors and baselines, and published figures.

    The scores came with the predictors or were evaluated on this machine. A dataset without stored
    scores has no entries.
    """
    sections = state.leaderboard.board.only(dataset).sections()
    rows = [row for section in sections for row in section.rows]
    return LeaderboardOut(entries=[EntryOut.model_validate(row.to_json()) for row in rows])


@router.get("/workloads", tags=["workloads"])
def workloads(answers: TheAnswers) -> WorkloadsOut:
    """Kinds of workload with their fields, allowed values and a valid example of each."""
    return workload_list(answers.adaptation.current().loaded.predictor)


@router.get("/presets", tags=["workloads"], name="presets")
async def list_presets() -> PresetsOut:
    """Named questions of every kind of workload, each with the request that asks it."""
    return PresetsOut(presets=list(presets()))
