"""Which predictor answers which query: one object for the service to hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from forerun.data.errors import UnanswerableQuery
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.models.adaptation.black_box import BlackBoxes
from forerun.models.artifact.sealed_folder import load_part, read_content, write_content
from forerun.models.power.limit_response import LimitResponse, binds
from forerun.models.power.training_jobs import PowerCap
from forerun.models.prediction import Column, Predictions
from forerun.models.predictor import Predictor, Suggesting

TIMES = ("latency_ms", "latency_cycles")
"""Metrics whose measurement is suggested; the others are measured beside them."""
CAPPED = ("kernel", "network", "architecture")
"""Kinds of workload whose predictors answer for a device at its own power limit."""
FREE = Operation()


@dataclass(frozen=True)
class Router:
    """For each metric, the first of several predictors that answers the query.

    Energy is never predicted beside power and latency, it follows from them, so the three cannot
    contradict each other.

    Attributes:
        parts: in order of preference.
        boxes: sheets estimated for devices that have none.
    """

    parts: tuple[Predictor, ...]
    boxes: BlackBoxes = field(default_factory=BlackBoxes)
    name: ClassVar[str] = "chosen"

    @property
    def metrics(self) -> tuple[str, ...]:
        """All metrics of the parts, and energy where power and latency are among them."""
        names = dict.fromkeys(m for part in self.parts for m in part.metrics)
        if "power_w" in names and "latency_ms" in names:
            names["energy_j"] = None
        return tuple(names)

    @property
    def response(self) -> LimitResponse:
        """What a power limit does to any workload: as a part learnt it, else as it ships."""
        taught = [part.response for part in self.parts if isinstance(part, PowerCap)]
        return taught[0] if taught else LimitResponse()

    def answers(self, query: Query) -> bool:
        """True when any part answers."""
        return any(part.answers(self.seen(query)) for part in self.parts)

    def seen(self, query: Query) -> Query:
        """The query as the parts see it: on an estimated sheet where its device has none."""
        return self.boxes.with_sheet(query)

    def only(self, metrics: Sequence[str]) -> Self:
        """The same answers to these metrics alone, without the cost of the other parts.

        Limits that concern other metrics are not said.
        """
        needed = {*metrics, *(("power_w", "latency_ms") if "energy_j" in metrics else ())}
        return replace(self, parts=tuple(p for p in self.parts if needed & set(p.metrics)))

    def fit(self, measurements: Measurements) -> Self:
        """Every part fitted on the rows that it answers; those below a device's own limit apart."""
        measurements = _free(measurements)
        return replace(self, parts=tuple(p.fit(_own(p, measurements)) for p in self.parts))

    def adapt(self, measurements: Measurements) -> Self:
        """Every part adapted on the rows whose metrics it is asked for, others as they are.

        Operators measured under a power limit teach nothing: what they do without one is not known.
        """
        measurements = _free(measurements)
        boxes, measurements = self.boxes.learn(measurements)
        parts = []
        values = dict(measurements.values)
        for part in self.parts:
            rows = _own(part, replace(measurements, values=values))
            parts.append(part.adapt(rows) if len(rows) else part)
            answered = np.array([part.answers(q) for q in measurements.queries], dtype=np.bool_)
            for name in part.metrics:
                if name in values:
                    values[name] = np.where(answered, np.nan, values[name])
        return replace(self, parts=tuple(parts), boxes=boxes)

    def suggest(self, queries: Sequence[Query], count: int, seed: int = 0) -> list[int]:
        """Positions of queries to measure: each part chooses among those it answers first.

        Parts take turns; queries of parts that cannot tell come in their order.
        """
        queries = [self.seen(query) for query in queries]
        left = [row for row, query in enumerate(queries) if self.answers(query)]
        chosen: list[list[int]] = []
        for part in (part for part in self.parts if set(TIMES) & set(part.metrics)):
            own = [row for row in left if part.answers(queries[row])]
            left = [row for row in left if row not in set(own)]
            if own and isinstance(part, Suggesting):
                places = part.suggest([queries[row] for row in own], count, seed)
                own = [own[place] for place in places]
            chosen.append(own)
        turns = chain.from_iterable(zip_longest(*chosen))
        return [row for row in turns if row is not None][:count]

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Each metric from the first part that answers the query.

        Raises:
            UnanswerableQuery: no part answers one of the queries.
        """
        queries = [self.seen(query) for query in queries]
        unanswered = [q for q in queries if not self.answers(q)]
        if unanswered:
            raise _unanswerable(unanswered[0])
        answer = _Merge(len(queries), self.metrics)
        for part in self.parts:
            rows = [
                row
                for row, query in enumerate(queries)
                if any(answer.wants(row, m) for m in part.metrics) and part.answers(query)
            ]
            if rows:
                answer.add(rows, part.predict([queries[row] for row in rows]))
        for row, query in enumerate(queries):
            if not any(
                getattr(p, "needs_no_sheet", False) and p.answers(query) for p in self.parts
            ):
                answer.limits[row] += self.boxes.limits(query)
        return self._capped(queries, answer.predictions())

    def _capped(self, queries: Sequence[Query], answers: Predictions) -> Predictions:
        """Power limits taken into account where the parts themselves do not know them."""
        plain = [q if q.workload.kind in CAPPED else replace(q, operation=FREE) for q in queries]
        if all(query.operation.power_limit_w is None for query in plain):
            return answers
        return self.response.capped(plain, answers)

    def save(self, folder: Path) -> None:
        """Each part in a folder of its own."""
        names = [f"{place:02d}-{part.name}" for place, part in enumerate(self.parts)]
        write_content(folder, self.name, {"parts": names, "boxes": self.boxes.to_json()})
        for name, part in zip(names, self.parts, strict=True):
            part.save(folder / name)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote."""
        content = read_content(folder, cls.name)
        parts = tuple(load_part(folder / Path(name).name) for name in content["parts"])
        return cls(parts, BlackBoxes.from_json(content.get("boxes", {})))


def _unanswerable(query: Query) -> UnanswerableQuery:
    kind, device = query.workload.kind, query.device
    if not device.has_sheet and kind not in ("design", "benchmark"):
        return UnanswerableQuery(
            f"{device.name} has no spec sheet and was not measured: give memory_bandwidth_gbs and "
            "peak_tflops, or latencies of some ten workloads on it."
        )
    return UnanswerableQuery(f"No predictor answers a {kind} workload on {device.name}.")


def _own(part: Predictor, measurements: Measurements) -> Measurements:
    measured = np.zeros(len(measurements), dtype=np.bool_)
    for name in part.metrics:
        if name in measurements.values:
            measured |= ~np.isnan(measurements.values[name])
    answered = np.array([part.answers(q) for q in measurements.queries], dtype=np.bool_)
    return measurements.take(measured & answered)


def _free(measurements: Measurements) -> Measurements:
    """The rows without those of operators under a limit that their device feels."""
    rows = [not (q.workload.kind in CAPPED and binds(q)) for q in measurements.queries]
    return measurements if all(rows) else measurements.take(np.array(rows, dtype=np.bool_))


class _Merge:
    """Columns being filled, part by part; the first answer to a metric of a row stays."""

    def __init__(self, rows: int, metrics: Sequence[str]) -> None:
        self.values = {m: np.full(rows, np.nan) for m in metrics}
        self.low = {m: np.full(rows, np.nan) for m in metrics}
        self.high = {m: np.full(rows, np.nan) for m in metrics}
        self.limits: list[tuple[str, ...]] = [()] * rows
        self.breakdowns: list[Mapping[str, float]] = [{}] * rows
        self.memory: list[Mapping[str, float]] = [{}] * rows
        self.coverage: dict[str, float | None] = {}
        self.row_coverage = {m: np.full(rows, np.nan) for m in metrics}

    def wants(self, row: int, metric: str) -> bool:
        return metric in self.values and bool(np.isnan(self.values[metric][row]))

    def add(self, rows: Sequence[int], part: Predictions) -> None:
        for metric in part.values:
            self.coverage.setdefault(metric, part.coverage_of(metric))
            shares = part.row_coverage.get(metric)
            for place, row in enumerate(rows):
                if not self.wants(row, metric):
                    continue
                self.values[metric][row] = part.values[metric][place]
                if metric in part.low:
                    self.low[metric][row] = part.low[metric][place]
                    self.high[metric][row] = part.high[metric][place]
                    share = part.coverage_of(metric) if shares is None else shares[place]
                    self.row_coverage[metric][row] = np.nan if share is None else share
                if metric == "latency_ms" and part.breakdowns_ms:
                    self.breakdowns[row] = part.breakdowns_ms[place]
                if metric == "peak_memory_mib" and part.breakdowns_mib:
                    self.memory[row] = part.breakdowns_mib[place]
        for place, row in enumerate(rows):
            if part.limits and part.limits[place]:
                self.limits[row] = tuple(dict.fromkeys(self.limits[row] + part.limits[place]))

    def predictions(self) -> Predictions:
        for columns in (self.values, self.low, self.high):
            if "energy_j" in columns:
                columns["energy_j"] = _energy(columns)
        return Predictions(
            self.values,
            self.low,
            self.high,
            self.coverage,
            self.limits,
            self.breakdowns,
            self.memory,
            self.row_coverage,
        )


def _energy(columns: Mapping[str, Column]) -> Column:
    return columns["power_w"] * columns["latency_ms"] / 1e3
