"""Limits on what clients send: how much, how many at a time, and what JSON may hold.

`Connection` is what uvicorn makes of a connection, `Admission` a middleware of the application, and
`JsonRoute` a route whose body is JSON, which a thread reads where it is large.

The parser of the standard library lets no other thread run between two calls of Python functions,
so functions of Python read the numbers of which large bodies mostly consist.
"""

import asyncio
import json
from collections.abc import Collection
from functools import partial
from json import JSONDecodeError
from typing import Any

import numpy as np
from fastapi import FastAPI, Request, Response
from numpy.typing import NDArray
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from forerun.data.shapes import Int
from forerun.service import problems
from forerun.service.http.access import ALWAYS_ANSWERED
from forerun.service.http.lanes import Busy, Departure
from forerun.service.http.state import Handler, State, ThreadRoute, state_of
from forerun.service.http.telemetry import Telemetry
from forerun.service.requests.faults import excerpt
from forerun.service.settings import Settings


class Connection(HttpToolsProtocol):
    """A connection, as uvicorn makes one by its option `http`; the rest is uvicorn's."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget further requests of the client: nobody is left to read their answers."""
        self.pipeline.clear()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The process ends: requests that wait for something are answered now."""
        _state_of(self.config).stopping.set()
        super().shutdown()


def _state_of(config: Config) -> State:
    """The state of the application, which uvicorn may have wrapped."""
    app: Any = config.loaded_app
    while not isinstance(app, FastAPI):
        app = app.app
    state = app.state.forerun
    assert isinstance(state, State)
    return state


BUSY = {
    "requests": ("Too many requests are being answered", "FORERUN_REQUESTS_IN_FLIGHT"),
    "bytes": ("The bodies of all requests are too large together", "FORERUN_MIB_IN_FLIGHT"),
}
"""What there is too much of -> why a request is refused, and the setting that limits it."""


class Admission:
    """ASGI middleware that refuses requests over the limits, before their bodies are read.

    Args:
        app: the application.
        settings: the limits.
        telemetry: counts what is refused.
        uploads: paths whose handlers read the body in chunks, with a size limit of their own.
    """

    def __init__(
        self, app: ASGIApp, settings: Settings, telemetry: Telemetry, uploads: Collection[str]
    ) -> None:
        self._app = app
        self._refused = {what: telemetry.refused.labels(what) for what in BUSY}
        self._uploads = frozenset(uploads)
        self._most_mib = settings.max_request_mib
        self._most_upload_bytes = settings.max_upload_mib * 2**20
        self._most_requests = settings.requests_in_flight
        self._most_bytes = settings.mib_in_flight * 2**20
        self._requests = self._bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request in, or answer with a problem."""
        if scope["type"] != "http" or scope["path"] in ALWAYS_ANSWERED:
            await self._app(scope, receive, send)
            return
        path, declared = scope["path"], _declared_bytes(scope)
        if path not in self._uploads and (declared or 0) > self._most_mib * 2**20:
            await problems.response(problems.too_large(path, self._most_mib))(scope, receive, send)
            return
        departure, counted, whole = Departure(receive), 0, False

        async def received() -> Message:
            nonlocal counted, whole
            message = await departure.receive()
            counted += self._add(path, len(message.get("body", b"")), counted)
            if not whole and not message.get("more_body"):
                self._check_requests()
                whole = True
                self._requests += 1
            return message

        try:
            self._check_requests()
            # What an upload declares beyond its limit is never read.
            self._check_bytes(min(declared or 0, self._most_upload_bytes), 0)
        except Busy as error:
            await problems.response_of(error, path)(scope, receive, send)
            return
        if declared == 0:
            whole = True
            self._requests += 1
        try:
            with departure.watchable():
                await self._app(scope, received, send)
        finally:
            self._requests -= whole
            self._bytes -= counted

    def _check_requests(self) -> None:
        """Refuse a request whose body is there, where too many are being answered.

        A client that sends its body slowly takes no other's place.

        Raises:
            Busy: there are too many.
        """
        if self._requests >= self._most_requests:
            raise self._busy("requests")

    def _check_bytes(self, length: int, before: int) -> None:
        """Refuse further bytes of a body that already had `before`.

        Raises:
            Busy: it is too large together with those of others; alone, any body may be received.
        """
        if self._bytes > before and self._bytes + length > self._most_bytes:
            raise self._busy("bytes")

    def _add(self, path: str, length: int, before: int) -> int:
        """Count bytes of a body that already had `before` bytes; returns their number.

        Raises:
            HTTPException: the body is over its limit.
            Busy: as `_check_bytes`.
        """
        if path not in self._uploads and before + length > self._most_mib * 2**20:
            raise HTTPException(413, problems.too_large(path, self._most_mib).detail)
        self._check_bytes(length, before)
        self._bytes += length
        return length

    def _busy(self, what: str) -> Busy:
        self._refused[what].inc()
        return Busy(*BUSY[what])


def _declared_bytes(scope: Scope) -> int | None:
    """The declared size of the body, 0 for a request without one; None where it is not declared."""
    headers = dict(scope["headers"])
    length = headers.get(b"content-length")
    if length is not None and length.isdigit():
        return int(length)
    return None if b"transfer-encoding" in headers else 0


MOST_DEPTH = 64
MOST_VALUES = 2_500_000
"""Over the 1.44 million numbers of the longest host window with all of its metrics."""
MOST_KEYS = 50_000
"""Keys of an object; the largest published configuration of a language model has 22,422."""


def parsed(content: bytes) -> Any:
    """The value of a JSON text.

    Args:
        content: the text in UTF-8, UTF-16 or UTF-32.

    Raises:
        JSONDecodeError: it is not JSON.
        HTTPException: it is not text, nests deeper than 64 levels, or holds too many values or
            keys.
        WrongField: an object gives a field several times with different values.
    """
    if content.count(b"[") + content.count(b"{") > MOST_DEPTH or content.count(b",") > MOST_VALUES:
        _check_bounds(content)
    ambiguous: list[_Ambiguous] = []
    hook = partial(_object, ambiguous)
    try:
        value = json.loads(content, object_pairs_hook=hook, parse_float=_float, parse_int=_int)
    except JSONDecodeError:
        raise
    except UnicodeDecodeError:
        raise HTTPException(400, "the body is not UTF-8 text") from None
    except ValueError:
        text = content.decode("utf-8", "replace")
        raise JSONDecodeError("A number has too many digits", text, 0) from None
    if not ambiguous:
        return value
    # The last to be complete holds all others that it could have hidden.
    last = ambiguous[-1]
    (one, other), place = last.ends, _place_of(last, value) or ()
    why = f"it is given several times, as {excerpt(one)} and {excerpt(other)}"
    raise problems.WrongField(400, (*place, last.name), why)


def _check_bounds(content: bytes) -> None:
    """Check how deep a text nests and how many values it has, by its marks outside of strings.

    Raises:
        HTTPException: it nests too deeply, or there are too many values.
    """
    letters = np.frombuffer(content, dtype=np.uint8)
    quotes = letters == ord('"')
    quotes[_escaped(letters)] = False
    outside = np.cumsum(quotes, dtype=np.uint8) & 1 == 0
    # The bit 0x20 makes a brace of a bracket, as it makes lower case of upper case.
    folded = letters | 0x20
    opened, closed = ((folded == ord(mark)) & outside for mark in "{}")
    commas = (letters == ord(",")) & outside
    if sum(map(np.count_nonzero, (opened, closed, commas))) > MOST_VALUES:
        raise HTTPException(413, f"the JSON holds over {MOST_VALUES:,} values; send fewer")
    marks = np.flatnonzero(opened | closed)
    depths = np.cumsum(np.where(opened[marks], 1, -1))
    if depths.size and depths.max() > MOST_DEPTH:
        raise HTTPException(400, f"the JSON nests deeper than {MOST_DEPTH} levels")


def _float(text: str) -> float:
    return float(text)


def _int(text: str) -> int:
    return int(text)


def _escaped(letters: NDArray[np.uint8]) -> Int[np.ndarray, " n"]:
    """Positions of characters after a backslash that is not itself escaped."""
    slashes = np.flatnonzero(letters == ord("\\"))
    if not slashes.size:
        return slashes
    starts = np.flatnonzero(np.diff(slashes, prepend=-2) != 1)
    in_run = np.arange(len(slashes)) - np.repeat(starts, np.diff(starts, append=len(slashes)))
    after: NDArray[np.intp] = slashes[in_run % 2 == 0] + 1
    return after[: np.searchsorted(after, len(letters))]


class _Ambiguous(dict[str, Any]):
    """An object that gives a field several times with different values; equal to itself alone."""

    name: str
    ends: tuple[Any, Any]
    """The first value and the last."""
    __hash__ = None

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other


def _object(found: list[_Ambiguous], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object with these fields; one that is ambiguous is put into the list as well."""
    made = dict(pairs)
    if len(made) > MOST_KEYS:
        raise HTTPException(413, f"an object has over {MOST_KEYS:,} keys; send fewer")
    if len(made) == len(pairs):
        return made
    for name, value in pairs:
        if made[name] != value:
            ambiguous = _Ambiguous(made)
            ambiguous.name, ambiguous.ends = name, (value, made[name])
            found.append(ambiguous)
            return ambiguous
    return made


def _place_of(wanted: _Ambiguous, value: Any) -> tuple[str | int, ...] | None:
    """Keys and positions from a value to one of its objects; None where it does not hold it."""
    if value is wanted:
        return ()
    held = value.items() if isinstance(value, dict) else ()
    for step, inner in enumerate(value) if isinstance(value, list) else held:
        if isinstance(inner, dict | list):
            place = _place_of(wanted, inner)
            if place is not None:
                return (step, *place)
    return None


ON_THE_LOOP_BYTES = 64 * 2**10
"""Bodies up to this size take less than a few milliseconds, and are parsed on the event loop."""


class JsonRoute(ThreadRoute):
    """A route whose large bodies stall no other request.

    The whole handler of such a request runs in an event loop of its own on a thread for uploads:
    parsing, validation, the answer, and its conversion to JSON.
    """

    async def answered(self, handler: Handler, request: Request) -> Response:
        """The answer by FastAPI's handler, on a thread where the body is large."""
        if self.body_field is None:
            return await handler(request)
        own = bounded(request)
        if len(await own.body()) <= ON_THE_LOOP_BYTES:
            return await handler(own)
        state = await state_of(own)
        return await state.upload(lambda: asyncio.run(handler(own)))


def bounded(request: Request) -> Request:
    """The same request, with its JSON parsed within bounds; its body is read once."""
    if isinstance(request, _BoundedRequest):
        return request
    return _BoundedRequest(request.scope, request.receive)


class _BoundedRequest(Request):
    """A request whose JSON is parsed within bounds."""

    async def json(self) -> Any:
        """The parsed body.

        Raises:
            JSONDecodeError: it is not JSON.
            TooMuchJson: it nests too deeply, or holds too many values.
        """
        return parsed(await self.body())
