"""Lanes of work off the event loop: threads with a bounded queue and deadlines."""

import asyncio
from asyncio import Event
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from threading import BoundedSemaphore
from time import perf_counter, time_ns
from typing import TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from forerun.data.errors import DeadlineExceeded, InputError
from forerun.features.deadline import Deadline, current, within
from forerun.service.http.telemetry import Telemetry
from forerun.service.requests.record import RequestRecord, Stage, continued
from forerun.service.requests.record import current as current_record


class Departure:
    """The messages of a request, which can be read ahead to see whether its client has left.

    Args:
        receive: the messages as the server gives them.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._ahead: deque[Message] = deque()

    async def receive(self) -> Message:
        """The next message, for the handler of the request."""
        return self._ahead.popleft() if self._ahead else await self._receive()

    async def left(self) -> None:
        """Return once the client has left; never, while part of its body is still to be read."""
        while True:
            message = await self._receive()
            self._ahead.append(message)
            if message["type"] == "http.disconnect":
                return
            if message.get("more_body"):
                await Event().wait()

    @contextmanager
    def watchable(self) -> Iterator[None]:
        """What runs in this context can ask for the departure by `current_departure`."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)


_CURRENT: ContextVar[Departure | None] = ContextVar("departure", default=None)


def current_departure() -> Departure | None:
    """The departure of the client whose request is handled; None outside of requests."""
    return _CURRENT.get()


T = TypeVar("T")
UNWATCHED_S = 0.05
"""Work that ends sooner is not worth a task that watches for the departure of its client."""


class Busy(InputError):
    """The service has too much to do at the moment; nothing was done."""

    status = 503
    retry_after_s = 1

    def __init__(self, limit: str, setting: str) -> None:
        """What is at its limit, and the setting that raises it."""
        super().__init__(f"{limit}; ask again in a moment, or raise {setting}.")


class Lane:
    """Threads for one kind of work, so that it waits for no other kind.

    Args:
        name: label of its metrics.
        threads: pieces of work that run at a time.
        waiting: pieces of work that may wait.
        setting: name of the setting of `waiting`, for messages.
        seconds: time that a piece of work may take, with its waiting.
        max_operators: operators that a graph may have.
        telemetry: counts what runs and what is abandoned.
        ends_early: whether work is ended at its deadline, and when its client leaves; otherwise it
            goes on, and only its caller gives up.
    """

    def __init__(
        self, name: str, threads: int, waiting: int, setting: str, *, seconds: float,
        max_operators: int, telemetry: Telemetry, ends_early: bool = True,
    ) -> None:  # fmt: skip
        self._name, self._setting, self._seconds = name, setting, seconds
        self._max_operators = max_operators
        self._ends_early = ends_early
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"forerun-{name}")
        self._room = BoundedSemaphore(threads + waiting)
        self._in_progress = telemetry.in_progress.labels(name)
        self._refused = telemetry.refused.labels(name)
        self._left, self._late = map(telemetry.abandoned.labels, ("client left", "deadline"))
        self._waiting, self._wait = telemetry.waiting.labels(name), telemetry.wait.labels(name)

    async def run(self, work: Callable[[], T]) -> T:
        """Run work on a thread of the lane; what already runs in a lane goes on there.

        Raises:
            Busy: too much work waits already.
            DeadlineExceeded: the work was not done in time.
            ClientDisconnect: the client left before the work was done.
        """
        if self._ends_early and current() is not None:
            return work()
        deadline = Deadline.after(self._seconds, self._max_operators)
        limit = deadline if self._ends_early else Deadline.after(inf, self._max_operators)
        submitted = self._submit(within(limit)(work))
        return await self._result(asyncio.wrap_future(submitted), deadline)

    def close(self) -> None:
        """Take no more work, and drop what waits."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _submit(self, work: Callable[[], T]) -> Future[T]:
        if not self._room.acquire(blocking=False):
            self._refused.inc()
            raise Busy(f"Too many {self._name} wait for their turn", self._setting)
        self._in_progress.inc()
        self._waiting.inc()
        submitted = self._pool.submit(self._begun, perf_counter(), current_record(), work)
        submitted.add_done_callback(self._done)
        return submitted

    def _begun(self, since_s: float, record: RequestRecord | None, work: Callable[[], T]) -> T:
        """Note how long work has waited, and do it as a part of its request."""
        waited_s = perf_counter() - since_s
        self._waiting.dec()
        self._wait.observe(waited_s)
        if record is not None and record.stages is not None:
            now_ns = time_ns()
            record.stages.append(Stage("queue", now_ns - int(waited_s * 1e9), now_ns))
        with continued(record):
            return work()

    def _done(self, ended: Future[T]) -> None:
        self._room.release()
        self._in_progress.dec()
        if ended.cancelled():  # so it never began
            self._waiting.dec()

    async def _result(self, future: asyncio.Future[T], deadline: Deadline) -> T:
        """The result of submitted work; without one in time, the work is abandoned."""
        try:
            left = await _left_first(future, deadline, self._ends_early)
            if left:
                self._left.inc()
                raise ClientDisconnect
            if not future.done():
                raise deadline.exceeded()
            return future.result()
        except DeadlineExceeded:
            self._late.inc()
            raise
        finally:
            if not future.done():
                deadline.abandoned.set()
                future.cancel()


async def _left_first(future: asyncio.Future[T], deadline: Deadline, watches: bool) -> bool:
    """Wait for the result, the deadline, or the departure of the client.

    Returns:
        Whether the client left before either of the others.
    """
    departure = current_departure() if watches else None
    unwatched_s = deadline.seconds if departure is None else min(UNWATCHED_S, deadline.seconds)
    await asyncio.wait((future,), timeout=unwatched_s)
    if future.done() or departure is None:
        return False
    leaving = asyncio.ensure_future(departure.left())
    try:
        rest_s = max(0.0, deadline.seconds - unwatched_s)
        await asyncio.wait((future, leaving), timeout=rest_s, return_when=asyncio.FIRST_COMPLETED)
        return leaving.done() and not future.done()
    finally:
        leaving.cancel()
