"""Requests that the application answers within its process, without a server."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Scope

Header = tuple[bytes, bytes]


async def nothing() -> bytes:
    """The body of a request without one."""
    return b""


@dataclass(frozen=True)
class InnerRequest:
    """A request with a body in JSON.

    Attributes:
        method: its method.
        path: its path.
        headers: headers that its client sent.
        client: address of its client.
        body: makes the body once the request was let in; what it raises is answered as any error.
    """

    method: str
    path: str
    headers: Sequence[Header]
    client: str
    body: Callable[[], Awaitable[bytes]] = nothing


@dataclass(frozen=True)
class InnerAnswer:
    """An answer.

    Attributes:
        status: HTTP status.
        headers: its headers.
        content: its body.
    """

    status: int
    headers: Sequence[Header]
    content: bytes


async def answer_of(app: ASGIApp, request: InnerRequest) -> InnerAnswer:
    """The application's answer; where this is cancelled, the client has left."""
    left = asyncio.Event()
    # The handler ends by itself, as with a client that leaves, and its task is kept until then.
    handling = asyncio.create_task(_answer(app, request, left))
    try:
        return await asyncio.shield(handling)
    except asyncio.CancelledError:
        left.set()
        handling.add_done_callback(_noticed)
        raise


async def _answer(app: ASGIApp, request: InnerRequest, left: asyncio.Event) -> InnerAnswer:
    status, content = 0, bytearray()
    headers: Sequence[Header] = ()
    received = False

    async def receive() -> Message:
        nonlocal received
        if received:
            await left.wait()
            return {"type": "http.disconnect"}
        received = True
        return {"type": "http.request", "body": await request.body(), "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status, headers = message["status"], message["headers"]
        else:
            content.extend(message.get("body", b""))

    try:
        await app(_scope(request), receive, send)
    except Exception:
        if not status:  # A fault of ours is answered and logged, and raised after that.
            raise
    return InnerAnswer(status, headers, bytes(content))


def _scope(request: InnerRequest) -> Scope:
    body = [(b"transfer-encoding", b"chunked"), (b"content-type", b"application/json")]
    sent = body if request.method == "POST" else []
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "2",
        "method": request.method,
        "scheme": "http",
        "path": request.path,
        "raw_path": request.path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [*request.headers, *sent],
        "client": (request.client, 0),
        "server": None,
    }


def _noticed(handling: "asyncio.Task[InnerAnswer]") -> None:
    """Take the error of a task that nobody waits for."""
    if not handling.cancelled():
        handling.exception()
