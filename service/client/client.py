"""Clients that wait and clients that are awaited: retries, deadlines, typed answers."""

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

from forerun.service.client import calls
from forerun.service.client.calls import Call


class ServiceError(Exception):
    """A request has no answer."""


class ServiceUnreachable(ServiceError):
    """The service did not answer in time, however often it was asked."""


class ServiceProblem(ServiceError):
    """The service refused a request.

    Attributes:
        status: HTTP status.
        type: stable identifier of the kind of problem, such as `/problems/unknown-device`.
        title: the kind of problem, in words.
        detail: what went wrong, where, and how to correct it.
        content: the whole problem document; empty where the answer was none.
    """

    def __init__(self, status: int, content: Mapping[str, Any]) -> None:
        self.status, self.content = status, content
        self.type = str(content.get("type", "about:blank"))
        self.title = str(content.get("title", f"HTTP status {status}"))
        self.detail = str(content.get("detail", self.title))
        super().__init__(f"{status}: {self.detail}")

    @classmethod
    def of(cls, status: int, body: bytes) -> "ServiceProblem":
        """The problem in an answer; a proxy's page or an empty body gives the status alone."""
        try:
            content = json.loads(body)
        except ValueError:
            content = {}
        return cls(status, content if isinstance(content, dict) else {})


try:
    import httpx
except ImportError:
    from forerun.data.errors import MissingExtra

    raise MissingExtra("The client", "client") from None

P = ParamSpec("P")
T = TypeVar("T")
Http = TypeVar("Http")
TRY_AGAIN = frozenset({429, 503})
"""Statuses with which the service refused before it did anything."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 8.0


class _Method(Generic[P, T]):
    """A method that sends what a function of `calls` makes; of `AsyncClient`, it is awaited."""

    def __init__(self, make: Callable[P, Call[T]]) -> None:
        self._make, self.__doc__ = make, make.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: "Client", owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: type) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self

        @wraps(self._make)
        def method(*given: P.args, **named: P.kwargs) -> Any:
            return client.send(self._make(*given, **named))

        return method


class _Attempts(Generic[T]):
    """When a request is sent again: after a random pause, until its deadline.

    Args:
        call: the request.
        deadline_s: time for all attempts together, seconds.
        retries: largest number of further attempts.
    """

    def __init__(self, call: Call[T], deadline_s: float, retries: int) -> None:
        self._call, self._retries, self._made = call, retries, 0
        self._end = time.monotonic() + deadline_s

    def arguments(self) -> dict[str, Any]:
        """Arguments of httpx for the next attempt."""
        call, left_s = self._call, max(self._end - time.monotonic(), 0.001)
        parameters = {name: value for name, value in call.parameters.items() if value is not None}
        body = {"json": call.body} if call.content is None else {"content": call.content}
        own = {"params": parameters, "headers": call.headers, "timeout": left_s}
        return own | {name: value for name, value in body.items() if value is not None}

    def pause_s(self, got: httpx.Response | httpx.TransportError) -> float | None:
        """Time to wait before the next attempt, seconds; None where there is an answer.

        Raises:
            ServiceProblem, ServiceUnreachable: there is to be no further attempt.
        """
        if isinstance(got, httpx.Response):
            if got.status_code not in TRY_AGAIN:
                return None
            failure: ServiceError = ServiceProblem.of(got.status_code, got.content)
            asked = got.headers.get("Retry-After", "")
        else:
            failure = ServiceUnreachable(f"{self._call.method} {self._call.path}: {got!r}")
            asked = ""
        most_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**self._made)
        pause_s = max(float(asked) if asked.isdecimal() else 0.0, random.uniform(0.0, most_s))  # noqa: S311
        self._made += 1
        if self._made > self._retries or pause_s >= self._end - time.monotonic():
            raise failure
        return pause_s

    def answer(self, got: Any) -> T:
        """The typed answer.

        Raises:
            ServiceProblem: the service refused the request.
        """
        if not got.is_success:
            raise ServiceProblem.of(got.status_code, got.content)
        return self._call.answer.validate_json(got.content or b"null")


class _Calls(Generic[Http]):
    """What both clients have: a connection, and a method for each function of `calls`."""

    _library: Callable[..., Any]

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout_s: float = 60.0,
        retries: int = 4,
        **options: Any,
    ) -> None:
        self._timeout_s, self._retries = timeout_s, retries
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._http: Http = self._library(**{"base_url": url, "headers": headers, **options})

    predict = _Method(calls.predict)
    predict_batch = _Method(calls.predict_batch)
    predict_model = _Method(calls.predict_model)
    pipeline = _Method(calls.pipeline)
    rank = _Method(calls.rank)
    power_sweep = _Method(calls.power_sweep)
    colocation = _Method(calls.colocation)
    rank_hosts = _Method(calls.rank_hosts)
    circuit = _Method(calls.circuit)
    llm_estimate = _Method(calls.llm_estimate)
    llm_estimate_batch = _Method(calls.llm_estimate_batch)
    llm_replay = _Method(calls.llm_replay)
    llm_support = _Method(calls.llm_support)
    llm_plan = _Method(calls.llm_plan)
    training_estimate = _Method(calls.training_estimate)
    training_plan = _Method(calls.training_plan)
    diffusion_estimate = _Method(calls.diffusion_estimate)
    upload_graph = _Method(calls.upload_graph)
    graph = _Method(calls.graph)
    delete_graph = _Method(calls.delete_graph)
    devices = _Method(calls.devices)
    device = _Method(calls.device)
    put_device = _Method(calls.put_device)
    delete_device = _Method(calls.delete_device)
    adapt = _Method(calls.adapt)
    observe = _Method(calls.observe)
    measurements = _Method(calls.measurements)
    undo_measurements = _Method(calls.undo_measurements)
    drift = _Method(calls.drift)
    leaderboard = _Method(calls.leaderboard)
    models = _Method(calls.models)
    presets = _Method(calls.presets)
    workloads = _Method(calls.workloads)
    ready = _Method(calls.ready)


class Client(_Calls[httpx.Client]):
    """A client of a running service.

    Requests that were refused for the moment (429, 503) or did not arrive are sent again, after
    what the service asks for and a random pause; one that arrives twice acts once.

    Args:
        url: address of the service, such as http://127.0.0.1:8080.
        key: key of `forerun keys create`, where the service asks for one.
        timeout_s: time for an answer with all attempts, seconds.
        retries: largest number of further attempts.
        options: further arguments of `httpx.Client`, such as `verify` or `proxy`.
    """

    _library = httpx.Client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def send(self, call: Call[T]) -> T:
        """Send a request and read its answer.

        Raises:
            ServiceProblem: the service refused it.
            ServiceUnreachable: there was no answer until the deadline.
        """
        attempts = _Attempts(call, self._timeout_s, self._retries)
        while True:
            got: httpx.Response | httpx.TransportError
            try:
                got = self._http.request(call.method, call.path, **attempts.arguments())
            except httpx.TransportError as error:
                got = error
            pause_s = attempts.pause_s(got)
            if pause_s is None:
                return attempts.answer(got)
            time.sleep(pause_s)


class AsyncClient(_Calls[httpx.AsyncClient]):
    """As `Client`, for use in an event loop; `options` are arguments of `httpx.AsyncClient`."""

    _library = httpx.AsyncClient

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        """Send a request and read its answer; raises as `Client.send`."""
        attempts = _Attempts(call, self._timeout_s, self._retries)
        while True:
            got: httpx.Response | httpx.TransportError
            try:
                got = await self._http.request(call.method, call.path, **attempts.arguments())
            except httpx.TransportError as error:
                got = error
            pause_s = attempts.pause_s(got)
            if pause_s is None:
                return attempts.answer(got)
            await asyncio.sleep(pause_s)
