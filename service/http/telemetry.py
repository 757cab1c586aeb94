"""Request counters and latency histograms for Prometheus."""

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Telemetry:
    """Metrics of one application, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "forerun_requests", "Requests", ("route", "status"), registry=self.registry
        )
        self.latency = Histogram(
            "forerun_request_seconds",
            "Time to answer",
            ("route",),
            buckets=BUCKETS,
            registry=self.registry,
        )
        answers = Counter("forerun_answers", "Predictions", ("from_cache",), registry=self.registry)
        self.known, self.new = answers.labels("yes"), answers.labels("no")
        self.in_progress = Gauge(
            "forerun_work_in_progress",
            "Pieces of work that run on a thread or wait for one",
            ("lane",),
            multiprocess_mode="livesum",
            registry=self.registry,
        )
        self.refused = Counter(
            "forerun_refused",
            "Requests refused because a limit was reached",
            ("limit",),
            registry=self.registry,
        )
        self.abandoned = Counter(
            "forerun_abandoned",
            "Pieces of work that ended without an answer",
            ("reason",),
            registry=self.registry,
        )
        self.predictor = Gauge(
            "forerun_predictor_info", "Predictor in use", ("version",), registry=self.registry
        )

    def loaded(self, version: str) -> None:
        """Record the version of the predictor in use."""
        self.predictor.clear()
        self.predictor.labels(version).set(1)


class Measured:
    """ASGI middleware that counts and times requests by route; paths would make too many labels."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry) -> None:
        self._app, self._telemetry = app, telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle the request, and record its status and time."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), "500"

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            route = getattr(scope.get("route"), "path", "unmatched")
            self._telemetry.requests.labels(route, status).inc()
            self._telemetry.latency.labels(route).observe(time.perf_counter() - start)
