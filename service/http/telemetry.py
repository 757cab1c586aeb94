"""Request counters and latency histograms for Prometheus."""

import time
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forerun.service.http import shared_folder

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Telemetry:
    """Metrics of one application, in a registry of its own.

    Where several processes serve, they write the counters into a shared folder, and each of them
    reports the sums over all, also of processes that have ended.
    """

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

        self.observations = Counter(
            "forerun_observations",
            "Observations that were stored",
            ("device",),
            registry=self.registry,
        )

    def exposition(self, facts: Iterable[Metric]) -> bytes:
        """All metrics in the text format of Prometheus.

        Args:
            facts: metrics on whose values all processes agree.
        """
        registry = self.registry
        folder = shared_folder.in_use()
        if folder is not None:
            registry = CollectorRegistry()
            MultiProcessCollector(registry, str(folder))  # type: ignore[no-untyped-call]
        known = CollectorRegistry()
        known.register(_Facts(facts))
        return generate_latest(registry) + generate_latest(known)


class _Facts(Collector):
    """Metrics of which the values are known already."""

    def __init__(self, facts: Iterable[Metric]) -> None:
        self._facts = tuple(facts)

    def collect(self) -> Iterable[Metric]:
        """The metrics."""
        return self._facts


class Measured:
    """ASGI middleware that counts and times requests by route; paths would make too many labels."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry) -> None:
        self._app, self._telemetry = app, telemetry
        self._kept: dict[tuple[str, str], tuple[Counter, Histogram]] = {}

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
            requests, latency = self._kept.get((route, status)) or self._of(route, status)
            requests.inc()
            latency.observe(time.perf_counter() - start)

    def _of(self, route: str, status: str) -> tuple[Counter, Histogram]:
        """The metrics of a route and a status, which take longer to find than to change."""
        telemetry = self._telemetry
        found = telemetry.requests.labels(route, status), telemetry.latency.labels(route)
        return self._kept.setdefault((route, status), found)
