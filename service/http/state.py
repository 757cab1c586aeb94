"""State that the request handlers share, as FastAPI dependencies."""

from asyncio import Event
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial, wraps
from inspect import Parameter, iscoroutinefunction, signature
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute

from forerun.data.errors import InputError
from forerun.models.artifact.sealed_folder import LoadedPredictor
from forerun.service.answers.llm.routing import FOLDER as ROUTED
from forerun.service.answers.llm.routing import Routing
from forerun.service.http.access import OF_SCOPE
from forerun.service.http.answers import Answers
from forerun.service.http.kubernetes.cluster import Cluster
from forerun.service.http.kubernetes.pods import Neighbours
from forerun.service.http.lanes import Lane
from forerun.service.http.monitoring.gauges import StoreSizes
from forerun.service.http.monitoring.tracing import Tracing
from forerun.service.http.telemetry import Telemetry
from forerun.service.http.tenants import Tenants
from forerun.service.settings import Settings
from forerun.service.stores.leaderboard import StoredLeaderboard
from forerun.service.stores.places import place_of

if TYPE_CHECKING:
    from forerun.service.http.kubernetes.table import WatchedTable

T = TypeVar("T")
QUESTION_THREADS = 2
UPLOAD_THREADS = 2
"""A small upload need not wait for one that takes long."""
ADAPTATIONS_WAITING = 8
REPORTS_WAITING = 8
LOADING = "The predictors are still loading; GET /readyz says when they are there."


class NotReady(InputError):
    """The predictors are still loading."""

    status = 503
    retry_after_s = 1


@dataclass
class State:
    """Settings, telemetry, lanes of work, the leaderboard, and the answers once they are loaded.

    Attributes:
        cluster: the Kubernetes cluster that is followed; None where the settings name none.
        stores: how full the stores are.
        neighbours: how programs on the nodes of a cluster slow each other down.
        tracing: exports spans of requests; None where no collector is set.
        table: the table of workload classes; None where the settings name no file of them.
        tenants: the states of tenants whose keys were presented; None until the answers are loaded.
        to_ask: questions that are asked first, so that those of clients need not wait for what they
            read.
        stopping: set when the process begins to end.
    """

    settings: Settings
    telemetry: Telemetry = field(default_factory=Telemetry)
    answers: Answers | None = None
    cluster: Cluster | None = None
    neighbours: Neighbours = field(default_factory=Neighbours)
    tracing: Tracing | None = None
    table: "WatchedTable | None" = None
    tenants: Tenants | None = None
    to_ask: Sequence[Mapping[str, Any]] = ()
    stopping: Event = field(default_factory=Event)
    leaderboard: StoredLeaderboard = field(init=False)
    stores: StoreSizes = field(init=False)

    def __post_init__(self) -> None:
        self.leaderboard = StoredLeaderboard(self.settings.home)
        self.stores = StoreSizes(self.settings)
        settings = self.settings
        limits: dict[str, Any] = {
            "seconds": settings.answer_seconds,
            "max_operators": settings.max_operators,
            "telemetry": self.telemetry,
        }
        questions, uploads = settings.questions_waiting, settings.uploads_waiting
        self._lanes = {
            name: Lane(name, threads, waiting, f"FORERUN_{limit}", ends_early=ends_early, **limits)
            for name, threads, waiting, limit, ends_early in (
                ("questions", QUESTION_THREADS, questions, "QUESTIONS_WAITING", True),
                ("uploads", UPLOAD_THREADS, uploads, "UPLOADS_WAITING", True),
                ("adaptations", 1, ADAPTATIONS_WAITING, "ANSWER_SECONDS", False),
                ("reports", 1, REPORTS_WAITING, "ANSWER_SECONDS", False),
            )
        }

    @cached_property
    def routing(self) -> Routing:
        """Deployments that routers ask about."""
        return Routing(place_of(self.settings) / ROUTED)

    async def run(self, work: Callable[[], T]) -> T:
        """Run work of more than a millisecond on a thread, off the event loop.

        Raises:
            Busy, DeadlineExceeded, ClientDisconnect: as `Lane.run`; `upload` and `adapt` too.
        """
        return await self._lanes["questions"].run(work)

    async def upload(self, work: Callable[[], T]) -> T:
        """Run work on an upload or another large body, which no ordinary question waits for."""
        return await self._lanes["uploads"].run(work)

    async def adapt(self, work: Callable[[], T]) -> T:
        """Run an adaptation, which takes seconds; one runs at a time, and to its end."""
        return await self._lanes["adaptations"].run(work)

    async def report(self, work: Callable[[], T]) -> T:
        """Run a report on stored observations; the first of many takes seconds."""
        return await self._lanes["reports"].run(work)

    def all_answers(self) -> Iterator[Answers]:
        """The answers of this state, and those of all tenants that are held."""
        if self.answers is not None:
            yield self.answers
        if self.tenants is not None:
            yield from self.tenants.answers()

    def swap(self, loaded: LoadedPredictor, candidate: LoadedPredictor | None = None) -> None:
        """Replace the predictor and the candidate of all answers."""
        assert self.answers is not None
        self.answers.swap(loaded, candidate)
        if self.tenants is not None:
            self.tenants.swap(loaded, candidate)

    def close(self) -> None:
        """Take no more work."""
        if self.answers is not None:
            self.answers.trial.close()
        if self.tenants is not None:
            self.tenants.close()
        for lane in self._lanes.values():
            lane.close()


async def state_of(request: Request) -> State:
    """The application's state, or that of the tenant whose key the request has.

    A coroutine, like `answers_of`, because FastAPI calls plain functions on another thread.

    Raises:
        NotReady: the predictors are still loading, and the tenant has no state yet.
        Busy, DeadlineExceeded, ClientDisconnect: as `Tenants.state`.
    """
    state, tenant = request.app.state.forerun, request.scope.get(OF_SCOPE)
    assert isinstance(state, State)
    if tenant is None:
        return state
    if state.tenants is None:
        raise NotReady(LOADING)
    return state.tenants.held(tenant) or await state.tenants.state(tenant)


async def answers_of(request: Request) -> Answers:
    """The answers, once the predictors are loaded.

    Raises:
        NotReady: the predictors are still loading.
    """
    answers = (await state_of(request)).answers
    if answers is None:
        raise NotReady(LOADING)
    return answers


def json_response(content: bytes | str) -> Response:
    """An answer that is JSON already."""
    return Response(content, media_type="application/json")


async def body_of(request: Request) -> bytes:
    """The body of a request as it was sent."""
    return await request.body()


TheState = Annotated[State, Depends(state_of)]
TheAnswers = Annotated[Answers, Depends(answers_of)]
TheBody = Annotated[bytes, Depends(body_of)]
Handler = Callable[[Request], Coroutine[Any, Any, Response]]
Work = TypeVar("Work", bound=Callable[..., Any])


class ThreadRoute(APIRoute):
    """A route whose plain functions run on a thread of the service, as `State.run`.

    Those of another lane say so by `on_lane`. Coroutines run on the event loop.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        own = endpoint if iscoroutinefunction(endpoint) else _on_a_thread(endpoint)
        super().__init__(path, own, **more)

    def get_route_handler(self) -> Handler:
        """The handler of the route, which calls FastAPI's one."""
        return partial(self.answered, super().get_route_handler())

    async def answered(self, handler: Handler, request: Request) -> Response:
        """The answer to a request by FastAPI's handler; other routes do more."""
        return await handler(request)


def on_lane(run: Literal["upload", "adapt", "report"]) -> Callable[[Work], Work]:
    """Let a function of a `ThreadRoute` run as this method of `State`."""

    def marked(work: Work) -> Work:
        setattr(work, "run", run)  # noqa: B010
        return work

    return marked


def _on_a_thread(work: Callable[..., T]) -> Callable[..., Coroutine[Any, Any, T]]:
    run, own = getattr(work, "run", "run"), signature(work)

    @wraps(work)
    async def endpoint(*, of_lanes: State, **given: Any) -> T:
        done: T = await getattr(of_lanes, run)(partial(work, **given))
        return done

    lanes = Parameter("of_lanes", Parameter.KEYWORD_ONLY, annotation=TheState)
    given = own.replace(parameters=[*own.parameters.values(), lanes])
    setattr(endpoint, "__signature__", given)  # noqa: B010
    return endpoint
