"""Questions to answers: the predictor in use, the devices, the graphs, and answers given before."""

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from pydantic_core import to_json

from forerun.data.device import Device, DeviceCatalog
from forerun.data.errors import InputError
from forerun.data.graph import FORMAT, OperatorGraph
from forerun.data.metrics import METRICS
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.features.readers.operator_json import graph_of
from forerun.models.bundled import LoadedPredictor
from forerun.models.prediction import Prediction
from forerun.models.roofline import Roofline
from forerun.service.graph_store import GraphStore
from forerun.service.schemas import KernelIn, PredictIn

UNITS = {m.name: m.unit for m in METRICS}


class UnknownMetric(InputError):
    """No metric has that name."""

    slug = "unknown-metric"


@dataclass(frozen=True, slots=True)
class Question:
    """A request with its names looked up, and what it is cached under."""

    query: Query
    metrics: tuple[str, ...]
    graph: str | None
    key: Hashable


class Answers:
    """Holds the predictor in use; `swap` puts another in its place between two questions.

    Args:
        loaded: the predictor.
        catalog: devices.
        graphs: uploaded graphs.
        kept: answers kept in memory.
    """

    def __init__(
        self, loaded: LoadedPredictor, catalog: DeviceCatalog, graphs: GraphStore, kept: int
    ) -> None:
        self.loaded, self.catalog, self.graphs = loaded, catalog, graphs
        self._kept = kept
        self._answers: OrderedDict[Hashable, bytes] = OrderedDict()
        self._lock = Lock()

    def swap(self, loaded: LoadedPredictor) -> None:
        """Answer with another predictor from now on."""
        self.loaded = loaded

    def question(self, asked: PredictIn) -> Question:
        """Look up the device and the graph.

        Raises:
            UnknownDevice, UnknownGraph, UnknownMetric, UnreadableModel: what was named is not here.
        """
        device = (
            asked.device if isinstance(asked.device, Device) else self.catalog.get(asked.device)
        )
        metrics = tuple(asked.metrics) if asked.metrics is not None else tuple(UNITS)
        strange = [name for name in metrics if name not in UNITS]
        if strange:
            raise UnknownMetric(f"No metric {strange[0]!r}; there are {', '.join(UNITS)}.")
        given = asked.workload
        if isinstance(given, KernelIn):
            content = {"format": FORMAT, "operators": [given.operator.to_json()]}
            graph = graph_of(content, "workload.operator")
            workload: Kernel | Network = Kernel(graph.operators[0], given.precision)
            digest, shown = graph.digest, None
        else:
            graph = self._graph(given.graph)
            workload = Network(graph, given.batch_size, given.precision, given.phase)
            digest = shown = graph.digest
        size = getattr(given, "batch_size", 0), getattr(given, "phase", "")
        key = (self.loaded.version, digest, size, given.precision, device, asked.software, metrics)
        return Question(Query(workload, device, asked.software), metrics, shown, (given.kind, key))

    def before(self, question: Question) -> bytes | None:
        """The answer given to the same question before, as JSON; None when there is none."""
        with self._lock:
            answer = self._answers.get(question.key)
            if answer is not None:
                self._answers.move_to_end(question.key)
            return answer

    def predict(self, question: Question) -> bytes:
        """The answer as JSON, kept for the next time.

        Raises:
            UnanswerableQuery, UnknownPrecision: no predictor can answer.
        """
        answer = to_json(answer_of(question, self.loaded))
        with self._lock:
            self._answers[question.key] = answer
            while len(self._answers) > self._kept:
                self._answers.popitem(last=False)
        return answer

    def _graph(self, given: str | Mapping[str, Any]) -> OperatorGraph:
        if isinstance(given, str):
            return self.graphs.get(given)
        return graph_of(given, "workload.graph")


def answer_of(question: Question, loaded: LoadedPredictor) -> dict[str, Any]:
    """The answer to one question, with the fields of `PredictionOut`."""
    query = question.query
    prediction = loaded.predictor.predict([query])[0]
    bound = Roofline().predict([query]).values["latency_ms"][0]
    workload = query.workload
    unknown = dict(workload.graph.unknown) if isinstance(workload, Network) else {}
    about = {name: limits_of(name, prediction.limits) for name in question.metrics}
    limits = list(dict.fromkeys(line for lines in about.values() for line in lines))
    return {
        "metrics": {name: _estimate(prediction, name, about[name]) for name in question.metrics},
        "missing": {
            name: _why_missing(query, name)
            for name in question.metrics
            if name not in prediction.estimates
        },
        "in_domain": not limits,
        "limits": limits,
        "breakdown_ms": dict(prediction.breakdown_ms),
        "roofline": {"latency_ms": float(bound)},
        "unknown_operators": unknown,
        "device": {"name": query.device.name, "origin": query.device.origin},
        "graph": question.graph,
        "predictor": {"name": loaded.predictor.name, "version": loaded.version},
    }


def limits_of(metric: str, limits: Sequence[str]) -> list[str]:
    """The lines that concern a metric: those that name no part are about latency.

    Energy is power times latency, so the lines of both are its own.
    """
    parts = {"power_w": ("power",), "energy_j": ("power", "")}
    wanted = ("memory",) if metric.endswith("_mib") else parts.get(metric, ("",))
    own = {line: line.partition(":")[0] for line in limits}
    return [
        line
        for line, part in own.items()
        if (part if part in ("power", "memory") else "") in wanted
    ]


def _estimate(prediction: Prediction, metric: str, limits: Sequence[str]) -> dict[str, Any] | None:
    estimate = prediction.estimates.get(metric)
    if estimate is None:
        return None
    return {
        "value": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "coverage": estimate.coverage,
        "unit": UNITS[metric],
        "in_domain": not limits,
    }


def _why_missing(query: Query, metric: str) -> str:
    if query.workload.kind == "kernel" and metric.endswith("_mib"):
        return "memory is a property of a whole network"
    phase = getattr(query.workload, "phase", "inference")
    return f"no predictor answers {metric} for {phase} on a {query.device.kind}"
