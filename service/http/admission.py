"""Which requests are let in: how many at a time, and with bodies of what size."""

from collections.abc import Collection

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forerun.service.http.lanes import Busy, Departure
from forerun.service.http.telemetry import Telemetry
from forerun.service.problems import response, response_of, too_large
from forerun.service.settings import Settings

ALWAYS_ANSWERED = frozenset({
    *("/healthz", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready"),
})  # fmt: skip
"""Paths for those who watch the service; no limit counts or refuses them."""


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
        self._refused = {what: telemetry.refused.labels(what) for what in ("requests", "bytes")}
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
            await response(too_large(path, self._most_mib))(scope, receive, send)
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
            await response_of(error, path)(scope, receive, send)
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
            raise HTTPException(413, too_large(path, self._most_mib).detail)
        self._check_bytes(length, before)
        self._bytes += length
        return length

    def _busy(self, what: str) -> Busy:
        self._refused[what].inc()
        if what == "bytes":
            return Busy(
                "The bodies of all requests are too large together", "FORERUN_MIB_IN_FLIGHT"
            )
        return Busy("Too many requests are being answered", "FORERUN_REQUESTS_IN_FLIGHT")


def _declared_bytes(scope: Scope) -> int | None:
    """The declared size of the body, 0 for a request without one; None where it is not declared."""
    headers = dict(scope["headers"])
    length = headers.get(b"content-length")
    if length is not None and length.isdigit():
        return int(length)
    return None if b"transfer-encoding" in headers else 0
