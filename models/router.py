"""A predictor that routes each query and metric to the first of several predictors."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from forerun.data.errors import UnanswerableQuery
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.models.adaptation.black_box import BlackBoxes
from forerun.models.adaptation.support_set import in_turns
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.power.limit_response import LimitResponse, binds
from forerun.models.power.training_jobs import PowerCap
from forerun.models.prediction import PredictionColumns, Predictions
from forerun.models.predictor import SETTING, Learning, Predictor, Suggesting

TIMES = ("latency_ms", "latency_cycles", "tpot_ms")
"""Metrics whose predictors suggest what to measure; other metrics are measured in the same runs."""
CAPPED = ("kernel", "network", "architecture")
"""Kinds of workloads whose predictors ignore the query's power limit."""
FREE = Operation()
"""Operation without a power limit."""


@dataclass(frozen=True)
class Router(StoredPredictor):
    """For each metric, the first of several predictors that answers the query.

    Energy is not predicted if power and latency are: it is their product, which keeps the three
    consistent.

    Attributes:
        parts: predictors in order of preference.
        boxes: estimated spec sheets of devices without one.
    """

    parts: tuple[Predictor, ...] = field(metadata=SETTING)
    boxes: BlackBoxes = field(default_factory=BlackBoxes)
    name: ClassVar[str] = "chosen"

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """All metrics of the parts, plus energy if power and latency are among them."""
        names = dict.fromkeys(m for part in self.parts for m in part.metrics)
        if "power_w" in names and "latency_ms" in names:
            names["energy_j"] = None
        return tuple(names)

    @property
    def response(self) -> LimitResponse:
        """Effect of a power limit on any workload, as fitted by a part or else the default."""
        fitted = [part.response for part in self.parts if isinstance(part, PowerCap)]
        return fitted[0] if fitted else LimitResponse()

    def answers(self, query: Query) -> bool:
        """Whether any part answers the query."""
        return any(part.answers(self.seen(query)) for part in self.parts)

    def answering(self, query: Query, metric: str) -> Predictor | None:
        """The part that predicts a metric of a query; None if no part does."""
        seen = self.seen(query)
        able = self._by_metric.get(metric, ())
        return next((part for part in able if part.answers(seen)), None)

    @cached_property
    def _by_metric(self) -> dict[str, list[Predictor]]:
        parts: dict[str, list[Predictor]] = {}
        for part in self.parts:
            for metric in part.metrics:
                parts.setdefault(metric, []).append(part)
        return parts

    def seen(self, query: Query) -> Query:
        """The query as passed to the parts, with an estimated spec sheet if the device has none."""
        return self.boxes.with_sheet(query)

    def only(self, metrics: Sequence[str]) -> Self:
        """A router with only the parts that these metrics need.

        Predictions of these metrics are unchanged; limits of the other parts are absent.
        """
        needed = {*metrics, *(("power_w", "latency_ms") if "energy_j" in metrics else ())}
        return replace(self, parts=tuple(p for p in self.parts if needed & set(p.metrics)))

    def fit(self, measurements: Measurements) -> Self:
        """Fit every part to the rows that it answers, excluding runs under a power limit."""
        measurements = _free(measurements)
        return replace(self, parts=tuple(p.fit(_own(p, measurements)) for p in self.parts))

    def adapt(self, measurements: Measurements) -> Self:
        """Adapt every part to rows of the metrics that it predicts in this router.

        A part also adapts to rows that an earlier part answers if it `learns` from them. Operators
        measured under a power limit are ignored, because their unlimited time and power are
        unknown.
        """
        measurements = _free(measurements)
        boxes, measurements = self.boxes.learn(measurements)
        parts = []
        measured = dict(measurements.values)
        values = dict(measured)
        for part in self.parts:
            left = values
            if isinstance(part, Learning):
                also = np.array([*map(part.learns, measurements.queries)], dtype=np.bool_)
                left = {
                    name: np.where(also, measured[name], measured_too)
                    for name, measured_too in values.items()
                }
            rows = _own(part, replace(measurements, values=left))
            parts.append(part.adapt(rows) if len(rows) else part)
            answered = np.array([part.answers(q) for q in measurements.queries], dtype=np.bool_)
            for name in part.metrics:
                if name in values:
                    values[name] = np.where(answered, np.nan, values[name])
        return replace(self, parts=tuple(parts), boxes=boxes)

    def suggest(self, queries: Sequence[Query], count: int, seed: int = 0) -> list[int]:
        """Indices of the queries to measure next.

        Each part ranks the queries that it is the first to answer, and the parts take turns.
        Queries of a part without suggestions keep their order.

        Args:
            queries: candidates.
            count: maximum number of indices.
            seed: seed of the parts' suggestions.
        """
        queries = [self.seen(query) for query in queries]
        left = [row for row, query in enumerate(queries) if self.answers(query)]
        chosen: list[list[int]] = []
        for part in (part for part in self.parts if set(TIMES) & set(part.metrics)):
            candidates = [row for row in left if part.answers(queries[row])]
            left = [row for row in left if row not in set(candidates)]
            if candidates and isinstance(part, Suggesting):
                order = part.suggest([queries[row] for row in candidates], count, seed)
                candidates = [candidates[index] for index in order]
            chosen.append(candidates)
        return in_turns(chosen)[:count]

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Each metric from the first part that answers the query.

        Raises:
            UnanswerableQuery: no part answers one of the queries.
        """
        return self.predict_only(self.metrics, queries)

    def predict_only(self, metrics: Collection[str], queries: Sequence[Query]) -> Predictions:
        """Predictions of these metrics only; parts without any of them are skipped.

        Under a power limit, times depend on power, so `latency_ms` then needs `power_w`.

        Raises:
            UnanswerableQuery: no part of the router answers one of the queries.
        """
        queries = self.boxes.with_sheets(queries)
        able = np.array([[*map(part.answers, queries)] for part in self.parts], dtype=np.bool_)
        unanswered = np.flatnonzero(~able.any(axis=0))
        if len(unanswered):
            raise _unanswerable(queries[unanswered[0]])
        answer = PredictionColumns(len(queries), (m for m in self.metrics if m in metrics))
        for place in np.flatnonzero(able.any(axis=1)).tolist():
            part = self.parts[place]
            needed = [name for name in part.metrics if name in metrics]
            if not needed:
                continue
            rows = np.flatnonzero(answer.lacking(needed) & able[place]).tolist()
            if rows:
                answer.put(rows, part.predict([queries[row] for row in rows]))
        answer.multiply_energy()
        if self.boxes.sheets:
            free = able[[_needs_no_sheet(part) for part in self.parts]].any(axis=0)
            for row in np.flatnonzero(~free).tolist():
                answer.limits[row] += self.boxes.limits(queries[row])
        return self._capped(queries, answer.predictions())

    def _capped(self, queries: Sequence[Query], answers: Predictions) -> Predictions:
        """Apply power limits to the predictions of parts that ignore them."""
        limited = [query.operation.power_limit_w is not None for query in queries]
        if not any(limited):
            return answers
        plain = [q if q.workload.kind in CAPPED else replace(q, operation=FREE) for q in queries]
        if all(query.operation.power_limit_w is None for query in plain):
            return answers
        return self.response.capped(plain, answers)


def predictors_in(predictor: Predictor) -> tuple[Predictor, ...]:
    """The predictors in a router, or the predictor itself."""
    return predictor.parts if isinstance(predictor, Router) else (predictor,)


def _needs_no_sheet(part: Predictor) -> bool:
    return bool(getattr(part, "needs_no_sheet", False))


def _unanswerable(query: Query) -> UnanswerableQuery:
    kind, device = query.workload.kind, query.device
    if not device.has_sheet and kind not in ("design", "benchmark"):
        return UnanswerableQuery(
            f"{device.name} has no spec sheet and was not measured: give memory_bandwidth_gbs and "
            "peak_tflops, or latencies of some ten workloads on it."
        )
    return UnanswerableQuery(f"No predictor answers a {kind} workload on {device.name}.")


def _own(part: Predictor, measurements: Measurements) -> Measurements:
    """The rows that a part answers and in which one of its metrics was measured."""
    measured = np.zeros(len(measurements), dtype=np.bool_)
    for name in part.metrics:
        if name in measurements.values:
            measured |= ~np.isnan(measurements.values[name])
    answered = np.array([part.answers(q) for q in measurements.queries], dtype=np.bool_)
    return measurements.take(measured & answered)


def _free(measurements: Measurements) -> Measurements:
    """The rows excluding runs of `CAPPED` workloads under a limit below the design power."""
    rows = [not (q.workload.kind in CAPPED and binds(q)) for q in measurements.queries]
    return measurements if all(rows) else measurements.take(np.array(rows, dtype=np.bool_))
