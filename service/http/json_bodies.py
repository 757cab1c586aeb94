"""Routes with JSON bodies: a large body is parsed, validated and answered on a thread."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from forerun.service.http.bounded_json import parsed
from forerun.service.http.state import state_of

ON_THE_LOOP_BYTES = 64 * 2**10
"""Bodies up to this size take less than a few milliseconds, and are parsed on the event loop."""


class JsonRoute(APIRoute):
    """A route whose large bodies stall no other request.

    The whole handler of such a request runs in an event loop of its own on a thread for uploads:
    parsing, validation, the answer, and its conversion to JSON.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler that FastAPI makes, on a thread where the body is large."""
        handler = super().get_route_handler()
        if self.body_field is None:
            return handler

        async def handled(given: Request) -> Response:
            request = bounded(given)
            if len(await request.body()) <= ON_THE_LOOP_BYTES:
                return await handler(request)
            state = await state_of(request)
            return await state.upload(lambda: asyncio.run(handler(request)))

        return handled


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
