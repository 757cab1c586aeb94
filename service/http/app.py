"""Create the FastAPI application: routes, middleware, error handlers, and start-up."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import Depends, FastAPI
from fastapi.routing import APIRoute
from starlette.staticfiles import StaticFiles
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from forerun import __version__
from forerun.data.errors import InputError
from forerun.models.artifact.loading import LoadedPredictor
from forerun.service import problems
from forerun.service.adaptation.predictor_in_use import adaptation_of
from forerun.service.answers.answer import answer_of
from forerun.service.http.answers import Answers
from forerun.service.http.pages import PAGES
from forerun.service.http.pages.rendering import STATIC
from forerun.service.http.query_parameters import known_parameters
from forerun.service.http.routes import ROUTERS, UPLOADS
from forerun.service.http.state import State
from forerun.service.http.telemetry import Measured
from forerun.service.http.uploads import Bounded
from forerun.service.loading import load_predictors
from forerun.service.schemas.prediction import EXAMPLE, EXAMPLE_NETWORK, PredictIn
from forerun.service.settings import Settings
from forerun.service.stores.devices import DeviceStore
from forerun.service.stores.graphs import GraphStore


def create_app(settings: Settings | None = None, loaded: LoadedPredictor | None = None) -> FastAPI:
    """The HTTP application.

    Args:
        settings: settings; those of the environment when None.
        loaded: the predictor; the one that the settings select when None.
    """
    state = State(settings or Settings.load())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await state.run(lambda: _load(state, loaded))
        yield
        for pool in (state.workers, state.adapter):
            pool.shutdown(wait=False, cancel_futures=True)

    app = FastAPI(
        title="forerun",
        version=__version__,
        summary="What will this workload cost on that hardware: time, memory, power.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses=problems.RESPONSES,
        generate_unique_id_function=_operation,
        dependencies=[Depends(known_parameters)],
    )
    app.state.forerun = state
    app.add_middleware(Bounded, limit_mib=state.settings.max_request_mib, but=UPLOADS)
    app.add_middleware(Measured, telemetry=state.telemetry)
    problems.install(app)
    for router in (*ROUTERS, *PAGES):
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app


def _load(state: State, loaded: LoadedPredictor | None) -> None:
    settings = state.settings
    # Matrices of one answer are small: threads that wait for each other cost more than they save.
    threadpool_limits(1, user_api="blas")
    graphs = GraphStore(settings.home / "graphs", settings.graphs_kept)
    devices = DeviceStore(settings.home / "devices")
    predictor = loaded or load_predictors(settings)
    state.telemetry.loaded(predictor.version)
    adaptation = adaptation_of(settings, predictor, devices, graphs.get)
    answers = Answers(adaptation, devices, graphs, settings.answers_kept)
    _warm(answers)
    state.answers = answers


def _warm(answers: Answers) -> None:
    """Answer the documented examples once, so that predictors load what they need on first use."""
    in_use = answers.adaptation.current()
    for example in (EXAMPLE, EXAMPLE_NETWORK):
        with suppress(InputError):
            answer_of(answers.question(PredictIn.model_validate(example)), in_use)


def _operation(route: APIRoute) -> str:
    return route.name
