"""Create the FastAPI application: routes, middleware, error handlers, and start-up."""

import asyncio
from asyncio import to_thread
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from threading import Lock
from typing import Any, Final

from fastapi import Depends, FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from forerun import __version__
from forerun.data.errors import BadRequest, InputError, MissingExtra, did_you_mean
from forerun.features.readers import read_graph
from forerun.models.artifact.sealed_folder import LoadedPredictor
from forerun.service import problems
from forerun.service.answers.answer import answer_of
from forerun.service.http import in_process
from forerun.service.http.access import Authorized, Guarded
from forerun.service.http.answers import Answers, answers_with
from forerun.service.http.limits import Admission
from forerun.service.http.monitoring import tracing
from forerun.service.http.monitoring.measured import Measured
from forerun.service.http.pages import PAGES
from forerun.service.http.pages.rendering import STATIC, other_page
from forerun.service.http.routes import ROUTERS, UPLOADS
from forerun.service.http.state import State
from forerun.service.http.tenants import Tenants
from forerun.service.http.trial import Shares, Trial
from forerun.service.http.upkeep import kept_up
from forerun.service.loading import load_at_once
from forerun.service.log import LINES, log
from forerun.service.presets import example_model, preset_named
from forerun.service.schemas.prediction import EXAMPLE, EXAMPLE_NETWORK, PredictIn
from forerun.service.settings import Settings
from forerun.service.stores.places import database_of


class Documented(FastAPI):
    """An application whose OpenAPI document several threads may ask for at once."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._making = Lock()

    def openapi(self) -> dict[str, Any]:
        """The document, which is made once."""
        with self._making:
            return super().openapi()


MOST_LISTED: Final = 5
"""Values of a parameter that are repeated in a message."""


class UnknownParameter(InputError):
    """The path takes no query parameter of that name."""

    def __init__(self, name: str, known: Collection[str]) -> None:
        self.did_you_mean, hint = did_you_mean(name, known, 0.5, most=1)
        listed = f"There are {', '.join(known)}" if known else "The path takes none"
        super().__init__(f"No query parameter {name!r:.80}. {hint}{listed}.")


async def known_parameters(request: Request) -> None:
    """Refuse query parameters under `/v1` that the OpenAPI document does not list, or lists once.

    Raises:
        UnknownParameter: a parameter is not listed; the message suggests a similar one.
        BadRequest: a parameter that takes one value has several.
    """
    if not request.scope["query_string"] or not request.url.path.startswith("/v1/"):
        return
    # The document takes a third of a second when it is first made, in which others are answered.
    document = request.app.openapi_schema or await to_thread(request.app.openapi)
    path = document["paths"].get(request.scope["route"].path, {})
    listed = path.get(request.method.lower(), {}).get("parameters", ())
    known = {each["name"]: each["schema"] for each in listed if each["in"] == "query"}
    for name in request.query_params:
        if name not in known:
            raise UnknownParameter(name, known)
        values = request.query_params.getlist(name)
        if len(values) > 1 and known[name].get("type") != "array":
            given = ", ".join(f"{value!r:.80}" for value in values[:MOST_LISTED])
            raise BadRequest(
                f"The query parameter {name} takes one value and has {len(values)}: {given}. "
                "Send one request for each."
            )


def check_grpc(settings: Settings) -> None:
    """Refuse to start where a port for gRPC is set and gRPC is not there.

    Raises:
        MissingExtra: it is not installed.
    """
    if settings.grpc_port is not None and find_spec("grpc") is None:
        raise MissingExtra("A port for gRPC", "grpc")


@asynccontextmanager
async def over_grpc(app: FastAPI, state: State) -> AsyncIterator[None]:
    """Answer over gRPC to the block's end, where the settings have a port for it.

    It begins in each process after it was forked, because threads of gRPC would not survive.
    """
    if state.settings.grpc_port is None:
        yield
        return
    from forerun.service.http.open_inference.grpc_service import served

    async with served(app, state):
        yield


USUAL = "resnet50-l4"
"""The preset that most questions about networks are like."""
MEASURED = "a100-pcie-80gb"
"""A device with measurements of networks, which answers about it are corrected by."""


def loaded_app(settings: Settings, forks: bool = False) -> FastAPI:
    """The HTTP application with its predictors loaded.

    Args:
        settings: settings.
        forks: whether processes will fork from this one. Then what the first questions about
            networks read is read now, because only what is read before is shared.

    Raises:
        BadArtifact: the predictors of the settings are damaged.
        MissingExtra: a collector of spans is set, and OpenTelemetry is not installed, or a port
            for gRPC, which is not.
    """
    tracing.check_installed()
    check_grpc(settings)
    app = create_app(settings)
    state = app.state.forerun
    _load(state, None)
    usual = list(_usual_questions(with_file=forks))
    if forks:
        _ask(state.answers, usual)
        asyncio.run(readiness(app))
        database_of(settings).close()  # processes that fork from here would share its connections
    else:
        # A scheduler waits 200 ms for an answer, and reading what most of them need takes longer.
        _ask(state.answers, usual[:2])
        state.to_ask = usual[2:]
    return app


def create_app(settings: Settings | None = None, loaded: LoadedPredictor | None = None) -> FastAPI:
    """The HTTP application; its start-up loads the predictors where that was not done yet.

    Args:
        settings: settings; those of the environment when None.
        loaded: the predictor; when None the one that the settings select, of a registry the
            champion that was fetched last.
    """
    state = State(settings or Settings.load())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if state.answers is None:
            await asyncio.to_thread(_load, state, loaded)
        assert state.answers is not None
        with LINES.of_service():
            async with kept_up(state, state.answers), tracing.traced(state):
                asked = asyncio.create_task(_ask_rest(state))
                async with over_grpc(app, state):
                    yield
                asked.cancel()
            state.close()

    app = Documented(
        title="forerun",
        version=__version__,
        summary="What will this workload cost on that hardware: time, memory, power.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses=problems.RESPONSES,
        generate_unique_id_function=lambda route: route.name,
        dependencies=[Depends(known_parameters)],
    )
    app.state.forerun = state
    app.add_middleware(
        Admission, settings=state.settings, telemetry=state.telemetry, uploads=UPLOADS
    )
    app.add_middleware(Authorized, settings=state.settings, telemetry=state.telemetry)
    app.add_middleware(Guarded, settings=state.settings)
    routers = (*ROUTERS, *PAGES)
    routes = [own for router in routers for own in router.routes if isinstance(own, Route)]
    app.add_middleware(Measured, state=state, routes=routes)
    problems.install(app)
    app.add_exception_handler(HTTPException, other_page)
    for router in routers:
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app


def _load(state: State, loaded: LoadedPredictor | None) -> None:
    settings = state.settings
    # Matrices of one answer are small: threads that wait for each other cost more than they save.
    threadpool_limits(1, user_api="blas")

    def made(own: Settings, predictor: LoadedPredictor) -> Answers:
        trial = Trial(Shares.of(own), state.telemetry)
        return answers_with(own, predictor, trial, state.telemetry.computed)

    answers = made(settings, loaded or load_at_once(settings))
    _ask(answers, (EXAMPLE, EXAMPLE_NETWORK))
    if settings.workload_classes is not None:
        from forerun.service.http.kubernetes.table import Table, WatchedTable

        table = Table(settings.workload_classes)
        table.check(answers)
        state.table = WatchedTable(table, state.stopping)
    state.answers, state.tenants = answers, Tenants(state, made)


def _usual_questions(*, with_file: bool) -> Iterator[Mapping[str, Any]]:
    """Questions whose answers need what most questions about networks need.

    Args:
        with_file: whether one of them is about a model file.
    """
    question = preset_named(USUAL).request
    yield question
    yield {**question, "device": MEASURED}
    in_fp32 = {**question["workload"], "precision": "fp32"}
    yield {**question, "workload": in_fp32}
    file = example_model() if with_file else None
    if file is not None:
        graph = read_graph(file.read_bytes()).to_json()
        yield {**question, "workload": {**in_fp32, "graph": graph}}


def _ask(answers: Answers, questions: Iterable[Mapping[str, Any]]) -> None:
    """Answer questions once, so that predictors load what they need on first use."""
    in_use = answers.adaptation.current()
    for question in questions:
        with suppress(InputError):
            answer_of(answers.question(PredictIn.model_validate(question)), in_use)


async def _ask_rest(state: State) -> None:
    """Ask the questions that are left once the service answers, on a thread; errors are logged."""
    questions, answers = state.to_ask, state.answers
    assert answers is not None
    if questions:
        try:
            await state.run(lambda: _ask(answers, questions))
        except Exception as error:
            log().error("the first questions were not answered", exc_info=error)


async def readiness(app: FastAPI) -> int:
    """The HTTP status of GET /readyz, which the application answers itself, without a server."""
    asked = in_process.InnerRequest("GET", "/readyz", [(b"host", b"localhost")], client="")
    return (await in_process.answer_of(app, asked)).status
