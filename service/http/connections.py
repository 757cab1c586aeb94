"""Connections of clients, which end when a client sends or reads too slowly."""

from asyncio import TimerHandle, Transport
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from forerun.service.http.state import State
from forerun.service.problems import connection_problem, response

PROGRESS_BYTES = 64 * 2**10


class LimitedConnection(HttpToolsProtocol):
    """A connection with limits on the size of a header and on the time that a client takes.

    uvicorn makes one of each connection (its option `http`). The time is for the whole header of a
    request, for each further 64 KiB of its body, and for reading some of the answer.

    Args:
        config: uvicorn's settings, with the application, whose settings are the limits.
        given: what else uvicorn passes.
        more: the same, by name.
    """

    def __init__(self, config: Config, *given: Any, **more: Any) -> None:
        super().__init__(config, *given, **more)
        self._state = _state_of(config)
        settings = self._state.settings
        self._seconds = settings.client_seconds
        self._most_header_bytes = settings.max_header_kib * 2**10
        self._in_header, self._in_body = True, False
        self._received_bytes = 0
        self._unsent_bytes = 0
        self._reading: TimerHandle | None = None
        self._writing: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Begin to wait for a header."""
        super().connection_made(transport)
        self._expect_data()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what was waited for."""
        self._expect_nothing()
        self.pipeline.clear()  # Nobody is left to read answers to further requests.
        self.resume_writing()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The process ends: requests that wait for something are answered now."""
        self._state.stopping.set()
        super().shutdown()

    def data_received(self, data: bytes) -> None:
        """Count what the client has sent, and refuse a header that is too large."""
        self._received_bytes += len(data)
        super().data_received(data)
        if self._in_header and self._received_bytes > self._most_header_bytes:
            self._end(431, f"The header has over {self._most_header_bytes // 1024} KiB.")
        elif self._in_body and self._received_bytes >= PROGRESS_BYTES:
            self._expect_data()

    def send_400_response(self, msg: str) -> None:
        """Say that the bytes are no request, and close the connection."""
        self._end(400, "The bytes that were received are not a request of HTTP/1.1.")

    def on_message_begin(self) -> None:
        """A client begins the header of a request."""
        super().on_message_begin()
        if not self._in_header:
            self._in_header = True
            self._expect_data()

    def on_headers_complete(self) -> None:
        """The header is whole; from now on, the body is waited for."""
        self._in_header, self._in_body = False, True
        self._expect_data()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._in_body = False
        self._expect_nothing()
        super().on_message_complete()

    def pause_writing(self) -> None:
        """The client reads more slowly than the answer is made."""
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        """The client has read what was sent."""
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        super().resume_writing()

    def _expect_data(self) -> None:
        self._expect_nothing()
        self._reading = self.loop.call_later(self._seconds, self._sent_too_slowly)

    def _expect_nothing(self) -> None:
        self._received_bytes = 0
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _expect_reading(self) -> None:
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._writing = self.loop.call_later(self._seconds, self._read_too_slowly)

    def _sent_too_slowly(self) -> None:
        if self.flow.read_paused:
            # The client waits for us: what it sent has not been taken yet.
            self._expect_data()
            return
        what = "64 KiB of its body" if self._in_body else "the header of a request"
        self._end(408, f"The client took over {self._seconds:g} seconds for {what}.")

    def _read_too_slowly(self) -> None:
        if self.transport.get_write_buffer_size() < self._unsent_bytes:
            self._expect_reading()
        else:
            self.transport.abort()

    def _end(self, status: int, why: str) -> None:
        """Say why, unless an answer has begun, and close the connection."""
        self._expect_nothing()
        if self.transport.is_closing():
            return
        if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
            answer = response(connection_problem(status, why))
            lines = [
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode(),
                b"connection: close",
            ]
            lines += [name + b": " + value for name, value in answer.raw_headers]
            self.transport.write(b"\r\n".join([*lines, b"", bytes(answer.body)]))
        self.transport.close()


def _state_of(config: Config) -> State:
    """The state of the application, which uvicorn may have wrapped."""
    app: Any = config.loaded_app
    while not isinstance(app, FastAPI):
        app = app.app
    state = app.state.forerun
    assert isinstance(state, State)
    return state
