"""State that the request handlers share, as FastAPI dependencies."""

from asyncio import get_running_loop
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from forerun.data.errors import InputError
from forerun.service.http.answers import Answers
from forerun.service.http.telemetry import Telemetry
from forerun.service.settings import Settings
from forerun.service.stores.leaderboard import StoredLeaderboard

T = TypeVar("T")
WORKERS = 2


class NotReady(InputError):
    """The predictors are still loading."""

    slug, status = "not-ready", 503


@dataclass
class State:
    """Settings, telemetry, thread pools, the leaderboard, and the answers once they are loaded."""

    settings: Settings
    telemetry: Telemetry = field(default_factory=Telemetry)
    workers: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(WORKERS, thread_name_prefix="forerun")
    )
    adapter: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="forerun-adapt")
    )
    answers: Answers | None = None
    leaderboard: StoredLeaderboard = field(init=False)

    def __post_init__(self) -> None:
        self.leaderboard = StoredLeaderboard(self.settings.home)

    async def run(self, work: Callable[[], T]) -> T:
        """Run work of more than a millisecond on a worker thread, off the event loop."""
        return await get_running_loop().run_in_executor(self.workers, work)

    async def adapt(self, work: Callable[[], T]) -> T:
        """Run an adaptation, which takes seconds, on a thread of its own; one runs at a time."""
        return await get_running_loop().run_in_executor(self.adapter, work)


async def state_of(request: Request) -> State:
    """The application's state.

    A coroutine, like `answers_of`, because FastAPI calls plain functions on another thread.
    """
    state = request.app.state.forerun
    assert isinstance(state, State)
    return state


async def answers_of(request: Request) -> Answers:
    """The answers, once the predictors are loaded.

    Raises:
        NotReady: the predictors are still loading.
    """
    answers = (await state_of(request)).answers
    if answers is None:
        raise NotReady("The predictors are still loading; GET /readyz says when they are there.")
    return answers


TheState = Annotated[State, Depends(state_of)]
TheAnswers = Annotated[Answers, Depends(answers_of)]
