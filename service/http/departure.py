"""Notice that a client has left while its request is worked on."""

from asyncio import Event
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from starlette.types import Message, Receive


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
