"""Counters, gauges and histograms for Prometheus."""

from collections.abc import Iterable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from forerun.service.http import shared_folder

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
DIFFERENCES = (0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
ADAPTATION_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Telemetry:
    """Metrics of one application, in a registry of its own.

    Where several processes serve, they write the counters into a shared folder, and each of them
    reports the sums over all, also of processes that have ended.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        times = partial(Histogram, registry=self.registry, buckets=BUCKETS)
        gauge = partial(Gauge, registry=self.registry, multiprocess_mode="livesum")
        self.requests = counter("forerun_requests", "Requests", ("route", "status"))
        self.latency = times("forerun_request_seconds", "Time to answer", ("route",))
        self.in_flight = gauge(
            "forerun_requests_in_flight", "Requests that are received or answered"
        )
        answers = counter("forerun_answers", "Predictions", ("from_cache",))
        self.known, self.new = answers.labels("yes"), answers.labels("no")
        by_domain = counter(
            "forerun_computed_answers",
            "Answers that were computed, without those from the cache",
            ("in_domain",),
        )
        self.in_domain, self.out_of_domain = by_domain.labels("yes"), by_domain.labels("no")
        self.in_progress = gauge(
            "forerun_work_in_progress",
            "Pieces of work that run on a thread or wait for one",
            ("lane",),
        )
        self.waiting = gauge(
            "forerun_work_waiting", "Pieces of work that wait for a thread", ("lane",)
        )
        self.wait = times(
            "forerun_work_wait_seconds", "Time that a piece of work waited for a thread", ("lane",)
        )
        self.refused = counter(
            "forerun_refused", "Requests refused because a limit was reached", ("limit",)
        )
        self.abandoned = counter(
            "forerun_abandoned", "Pieces of work that ended without an answer", ("reason",)
        )
        self.adaptation = times(
            "forerun_adaptation_seconds",
            "Time to adapt to a set of measurements",
            buckets=ADAPTATION_BUCKETS,
        )
        self.observations = counter(
            "forerun_observations", "Observations that were stored", ("device",)
        )
        self._count_trials(counter, times)

    def _count_trials(self, counter: "partial[Counter]", times: "partial[Histogram]") -> None:
        self.shadowed = counter(
            "forerun_shadow_answers",
            "Answers of the candidate that were compared, failed, or left out for lack of time",
            ("version", "outcome"),
        )
        self.differences = times(
            "forerun_shadow_difference_ratio",
            "Absolute difference of the candidate's estimate over the champion's",
            ("version", "metric"),
            buckets=DIFFERENCES,
        )

    def computed(self, answers: Iterable[object]) -> None:
        """Count answers by whether the question lay in the training range; errors are no answers.

        Args:
            answers: answers with a field `in_domain`, and errors.
        """
        for answer in answers:
            in_domain = getattr(answer, "in_domain", None)
            if in_domain is not None:
                (self.in_domain if in_domain else self.out_of_domain).inc()

    def values(self, name: str) -> dict[tuple[str, ...], float]:
        """Values of one sample over all processes, by the values of its labels, sorted by label."""
        return {
            tuple(value for _, value in sorted(sample.labels.items())): sample.value
            for metric in self._registry().collect()
            for sample in metric.samples
            if sample.name == name
        }

    def exposition(self, facts: Iterable[Metric]) -> bytes:
        """All metrics in the text format of Prometheus.

        Args:
            facts: metrics on whose values all processes agree.
        """
        registry = self._registry()
        known = CollectorRegistry()
        known.register(_Facts(facts))
        return generate_latest(registry) + generate_latest(known)

    def _registry(self) -> CollectorRegistry:
        """The metrics of this process, or the sums over all that serve together."""
        folder = shared_folder.in_use()
        if folder is None:
            return self.registry
        registry = CollectorRegistry()
        MultiProcessCollector(registry, str(folder))  # type: ignore[no-untyped-call]
        return registry


class _Facts(Collector):
    """Metrics of which the values are known already."""

    def __init__(self, facts: Iterable[Metric]) -> None:
        self._facts = tuple(facts)

    def collect(self) -> Iterable[Metric]:
        """The metrics."""
        return self._facts
