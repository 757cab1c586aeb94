"""Spans of requests, by OpenTelemetry, whose SDK is imported only where a collector is set."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Self

from forerun import __version__
from forerun.data.errors import MissingExtra
from forerun.service.requests.record import RequestRecord, TraceParent

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import SpanProcessor

    from forerun.service.http.state import State

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Variables of OpenTelemetry that name a collector."""
FLUSH_MS: Final = 3_000
"""Time for the last spans at the end of a process, milliseconds."""


def is_wanted() -> bool:
    """Whether the environment names a collector and does not turn OpenTelemetry off."""
    off = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return not off and any(os.environ.get(name) for name in ENDPOINTS)


def check_installed() -> None:
    """Refuse to start where a collector is set and nothing could be sent to it.

    Raises:
        MissingExtra: OpenTelemetry is not installed.
    """
    if is_wanted() and not (find_spec("opentelemetry") and find_spec("opentelemetry.exporter")):
        raise MissingExtra(ENDPOINTS[1], "telemetry")


@asynccontextmanager
async def traced(holder: "State") -> AsyncIterator[None]:
    """Send spans to the collector of the environment, if there is one, to the block's end.

    It begins in each process after it was forked, because the thread that sends would not survive.
    """
    if not is_wanted():
        yield
        return
    holder.tracing = tracing = Tracing.to_collector()
    yield
    holder.tracing = None
    await asyncio.to_thread(tracing.close)


class Tracing:
    """Makes a span of each request, with its stages as spans below it.

    A span belongs to the trace of the header `traceparent`; without one it begins a trace. Which
    traces are kept is decided by OpenTelemetry's sampler (`OTEL_TRACES_SAMPLER`).

    Args:
        processor: takes the spans that have ended.
    """

    def __init__(self, processor: "SpanProcessor") -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider

        named = {"service.name": "forerun"} if not os.environ.get("OTEL_SERVICE_NAME") else {}
        resource = Resource.create({**named, "service.version": __version__})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("forerun", __version__)

    @classmethod
    def to_collector(cls) -> Self:
        """Spans for the collector of the environment, which a thread of this process sends."""
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        return cls(BatchSpanProcessor(OTLPSpanExporter()))

    def export(
        self, record: RequestRecord, *, method: str, route: str, status: int, start_ns: int
    ) -> None:
        """Make the spans of a request that has just ended.

        Args:
            record: the request, with its stages.
            method: its method.
            route: template of its path.
            status: status of the answer.
            start_ns: when its header was there, nanoseconds since 1970.
        """
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

        span = self._tracer.start_span(
            f"{method} {route}",
            context=_context_of(record.trace),
            kind=SpanKind.SERVER,
            start_time=start_ns,
            attributes={
                "http.request.method": method,
                "http.route": route,
                "http.response.status_code": status,
                "forerun.request_id": record.request_id,
            },
        )
        if status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        below = set_span_in_context(span)
        for name, begun_ns, ended_ns in tuple(record.stages or ()):
            self._tracer.start_span(name, below, start_time=begun_ns).end(ended_ns)
        span.end()

    def close(self) -> None:
        """Send what was not sent yet, within `FLUSH_MS`, and end."""
        self._provider.force_flush(FLUSH_MS)
        self._provider.shutdown()


def _context_of(trace: TraceParent | None) -> "Context":
    """The context of a client's span; an empty one without it."""
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    given = trace and f"00-{trace.trace_id}-{trace.span_id}-{trace.flags:02x}"
    carrier = {"traceparent": given} if given else {}
    return TraceContextTextMapPropagator().extract(carrier, Context())
