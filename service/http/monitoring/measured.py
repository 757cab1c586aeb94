"""Middleware around all others: counts, times, logs and traces requests by their route.

A line of the access log has the route's template in place of the path, and neither the query nor
any header but the identifiers of the request and of its trace.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import json
from prometheus_client import Counter, Histogram
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forerun.service.http.state import State
from forerun.service.log import LINES
from forerun.service.requests.record import RequestRecord, Stage

UNMATCHED = "unmatched"


class Measured:
    """ASGI middleware that records each request; paths would make too many labels, routes do not.

    Args:
        app: the application.
        state: has the metrics, the settings of the log, and the tracing.
        routes: the routes of the application, by which requests are named that were refused
            before they reached one.
    """

    def __init__(self, app: ASGIApp, state: State, routes: Sequence[Route]) -> None:
        self._app, self._state, self._routes = app, state, routes
        self._logs = state.settings.access_log
        self._in_flight = state.telemetry.in_flight
        self._kept: dict[tuple[str, int], tuple[Counter, Histogram]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle the request, whose answer has its identifier, and record how it ended."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        tracing = self._state.tracing
        record = RequestRecord.of(scope["headers"], staged=tracing is not None)
        identifier = b"x-request-id", record.request_id.encode()
        start, start_ns, written_ns = time.perf_counter(), time.time_ns(), 0
        status, sent_bytes = 500, 0

        async def received() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body"):
                assert record.stages is not None
                record.stages.append(Stage("read", start_ns, time.time_ns()))
            return message

        async def noted(message: Message) -> None:
            nonlocal status, sent_bytes, written_ns
            if message["type"] == "http.response.start":
                status, written_ns = message["status"], time.time_ns()
                message = {**message, "headers": [*message.get("headers", ()), identifier]}
            else:
                sent_bytes += len(message.get("body", b""))
            await send(message)

        self._in_flight.inc()
        try:
            await self._app(scope, receive if tracing is None else received, noted)
        finally:
            self._in_flight.dec()
            took_s = time.perf_counter() - start
            route = getattr(scope.get("route"), "path", None) or self._meant(scope["path"])
            requests, latency = self._kept.get((route, status)) or self._of(route, status)
            requests.inc()
            latency.observe(took_s)
            if self._logs:
                self._log(scope, record, route, status, took_s, sent_bytes)
            if tracing is not None:
                if written_ns and record.stages is not None:
                    record.stages.append(Stage("write", written_ns, time.time_ns()))
                tracing.export(
                    record, method=scope["method"], route=route, status=status, start_ns=start_ns
                )

    def _log(
        self, scope: Scope, record: RequestRecord, route: str, status: int, took_s: float, sent: int
    ) -> None:
        """Write the line of a request, not by structlog, because every request has one.

        `route` is the template of the path, `duration_ms` the time from the header of the request
        to the end of the answer, and `bytes` those of the answer's body. There is no `version`
        while the predictors are loading, and no `client` on a Unix socket.
        """
        client, state = scope.get("client"), self._state
        if record.tenant is not None and state.tenants is not None:
            state = state.tenants.held(record.tenant) or state
        line = {
            "method": scope["method"],
            "route": route,
            "status": status,
            "duration_ms": round(took_s * 1e3, 3),
            "bytes": sent,
            "request_id": record.request_id,
            "trace_id": None if record.trace is None else record.trace.trace_id,
            "key_name": record.key_name,
            "tenant": record.tenant,
            "version": None if state.answers is None else state.answers.adaptation.version,
            "client": client[0] if client else None,
            "event": "request",
            "level": "info",
            "timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        }
        LINES.write(json.encode(line).decode())

    def _meant(self, path: str) -> str:
        """The template of the route that a refused request was meant for."""
        found = (route.path for route in self._routes if route.path_regex.match(path))
        return next(found, UNMATCHED)

    def _of(self, route: str, status: int) -> tuple[Counter, Histogram]:
        """The metrics of a route and a status, which take longer to find than to change."""
        telemetry = self._state.telemetry
        found = telemetry.requests.labels(route, str(status)), telemetry.latency.labels(route)
        return self._kept.setdefault((route, status), found)
