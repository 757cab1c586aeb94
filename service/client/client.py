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
TRY_AGAIN = frozenset({429, 503})
"""Statuses with which the service refused before it did anything."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 8.0


class _Sync(Generic[P, T]):
    """A method that sends what a function of `calls` makes, and waits for the answer."""

    def __init__(self, make: Callable[P, Call[T]]) -> None:
        self._make, self.__doc__ = make, make.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: "Client", owner: type) -> Callable[P, T]: ...
    def __get__(self, client: "Client | None", owner: type) -> Self | Callable[P, T]:
        if client is None:
            return self

        @wraps(self._make)
        def method(*given: P.args, **named: P.kwargs) -> T:
            return client.send(self._make(*given, **named))

        return method


class _Async(Generic[P, T]):
    """The same, awaited."""

    def __init__(self, make: Callable[P, Call[T]]) -> None:
        self._make, self.__doc__ = make, make.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: type) -> Callable[P, Awaitable[T]]: ...
    def __get__(
        self, client: "AsyncClient | None", owner: type
    ) -> Self | Callable[P, Awaitable[T]]:
        if client is None:
            return self

        @wraps(self._make)
        async def method(*given: P.args, **named: P.kwargs) -> T:
            return await client.send(self._make(*given, **named))

        return method


class _Attempts:
    """When a request is sent again: after a random pause, until its deadline.

    Args:
        deadline_s: time for all attempts together, seconds.
        retries: largest number of further attempts.
    """

    def __init__(self, deadline_s: float, retries: int) -> None:
        self._end, self._retries, self._made = time.monotonic() + deadline_s, retries, 0

    @property
    def left_s(self) -> float:
        """Time until the deadline, seconds; a little even where it is over."""
        return max(self._end - time.monotonic(), 0.001)

    def pause_s(self, least_s: float = 0.0) -> float | None:
        """Time to wait before the next attempt; None where there is to be none.

        Args:
            least_s: what the service asks for.
        """
        most = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**self._made)
        pause = max(least_s, random.uniform(0.0, most))  # noqa: S311
        self._made += 1
        return pause if self._made <= self._retries and pause < self.left_s else None


def _request(call: Call[Any], left_s: float) -> dict[str, Any]:
    """Arguments of httpx."""
    parameters = {name: value for name, value in call.parameters.items() if value is not None}
    own: dict[str, Any] = {"params": parameters, "headers": call.headers, "timeout": left_s}
    if call.content is not None:
        return own | {"content": call.content}
    return own | ({} if call.body is None else {"json": call.body})


def _answer(call: Call[T], response: httpx.Response) -> T:
    """The typed answer.

    Raises:
        ServiceProblem: the service refused the request.
    """
    if not response.is_success:
        raise ServiceProblem.of(response.status_code, response.content)
    return call.answer.validate_json(response.content or b"null")


def _asked_for_s(response: httpx.Response) -> float:
    """Seconds of the header Retry-After; 0 without one in seconds."""
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isdecimal() else 0.0


def _settings(url: str, key: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return {"base_url": url, "headers": headers, **options}


class Client:
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
        self._http = httpx.Client(**_settings(url, key, options))

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
        attempts = _Attempts(self._timeout_s, self._retries)
        while True:
            least_s = 0.0
            try:
                made = _request(call, attempts.left_s)
                response = self._http.request(call.method, call.path, **made)
                if response.status_code not in TRY_AGAIN:
                    return _answer(call, response)
                failure: Exception = ServiceProblem.of(response.status_code, response.content)
                least_s = _asked_for_s(response)
            except httpx.TransportError as error:
                failure = ServiceUnreachable(f"{call.method} {call.path}: {error!r}")
            pause_s = attempts.pause_s(least_s)
            if pause_s is None:
                raise failure
            time.sleep(pause_s)

    predict = _Sync(calls.predict)
    predict_batch = _Sync(calls.predict_batch)
    predict_model = _Sync(calls.predict_model)
    rank = _Sync(calls.rank)
    power_sweep = _Sync(calls.power_sweep)
    colocation = _Sync(calls.colocation)
    rank_hosts = _Sync(calls.rank_hosts)
    circuit = _Sync(calls.circuit)
    llm_estimate = _Sync(calls.llm_estimate)
    llm_estimate_batch = _Sync(calls.llm_estimate_batch)
    llm_replay = _Sync(calls.llm_replay)
    llm_support = _Sync(calls.llm_support)
    diffusion_estimate = _Sync(calls.diffusion_estimate)
    upload_graph = _Sync(calls.upload_graph)
    graph = _Sync(calls.graph)
    delete_graph = _Sync(calls.delete_graph)
    devices = _Sync(calls.devices)
    device = _Sync(calls.device)
    put_device = _Sync(calls.put_device)
    delete_device = _Sync(calls.delete_device)
    adapt = _Sync(calls.adapt)
    observe = _Sync(calls.observe)
    measurements = _Sync(calls.measurements)
    undo_measurements = _Sync(calls.undo_measurements)
    drift = _Sync(calls.drift)
    leaderboard = _Sync(calls.leaderboard)
    models = _Sync(calls.models)
    presets = _Sync(calls.presets)
    workloads = _Sync(calls.workloads)
    ready = _Sync(calls.ready)


class AsyncClient:
    """As `Client`, for use in an event loop; `options` are arguments of `httpx.AsyncClient`."""

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
        self._http = httpx.AsyncClient(**_settings(url, key, options))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        """Send a request and read its answer; raises as `Client.send`."""
        attempts = _Attempts(self._timeout_s, self._retries)
        while True:
            least_s = 0.0
            try:
                made = _request(call, attempts.left_s)
                response = await self._http.request(call.method, call.path, **made)
                if response.status_code not in TRY_AGAIN:
                    return _answer(call, response)
                failure: Exception = ServiceProblem.of(response.status_code, response.content)
                least_s = _asked_for_s(response)
            except httpx.TransportError as error:
                failure = ServiceUnreachable(f"{call.method} {call.path}: {error!r}")
            pause_s = attempts.pause_s(least_s)
            if pause_s is None:
                raise failure
            await asyncio.sleep(pause_s)

    predict = _Async(calls.predict)
    predict_batch = _Async(calls.predict_batch)
    predict_model = _Async(calls.predict_model)
    rank = _Async(calls.rank)
    power_sweep = _Async(calls.power_sweep)
    colocation = _Async(calls.colocation)
    rank_hosts = _Async(calls.rank_hosts)
    circuit = _Async(calls.circuit)
    llm_estimate = _Async(calls.llm_estimate)
    llm_estimate_batch = _Async(calls.llm_estimate_batch)
    llm_replay = _Async(calls.llm_replay)
    llm_support = _Async(calls.llm_support)
    diffusion_estimate = _Async(calls.diffusion_estimate)
    upload_graph = _Async(calls.upload_graph)
    graph = _Async(calls.graph)
    delete_graph = _Async(calls.delete_graph)
    devices = _Async(calls.devices)
    device = _Async(calls.device)
    put_device = _Async(calls.put_device)
    delete_device = _Async(calls.delete_device)
    adapt = _Async(calls.adapt)
    observe = _Async(calls.observe)
    measurements = _Async(calls.measurements)
    undo_measurements = _Async(calls.undo_measurements)
    drift = _Async(calls.drift)
    leaderboard = _Async(calls.leaderboard)
    models = _Async(calls.models)
    presets = _Async(calls.presets)
    workloads = _Async(calls.workloads)
    ready = _Async(calls.ready)
