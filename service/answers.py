"""Questions to answers: the predictor in use, the devices, the graphs, and answers given before."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import isfinite
from threading import Lock
from typing import Any

import numpy as np
from pydantic_core import to_json

from forerun.data.device import Device
from forerun.data.errors import UnanswerableQuery, UnknownBandwidth, UnknownMetric
from forerun.data.graph import OperatorGraph
from forerun.data.metrics import METRICS
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.features.roofline import COMPUTE_PRECISION
from forerun.models.bundled import LoadedPredictor
from forerun.models.chosen import Chosen
from forerun.models.prediction import Prediction
from forerun.models.roofline import Roofline
from forerun.service.adaptation import Adaptation, InUse
from forerun.service.device_store import DeviceStore
from forerun.service.graph_store import GraphStore
from forerun.service.limit_lines import limit_line
from forerun.service.schemas import NetworkIn, PredictIn
from forerun.service.workloads import workload_of

UNITS = {m.name: m.unit for m in METRICS}


@dataclass(frozen=True, slots=True)
class Question:
    """A request with its names looked up, and what its answer is kept under."""

    query: Query
    metrics: tuple[str, ...]
    graph: str | None
    key: Hashable


class Answers:
    """Holds the predictor in use; `swap` puts another in its place between two questions.

    Args:
        adaptation: the predictor, adapted on what users measured.
        devices: spec sheets.
        graphs: uploaded graphs.
        kept: answers kept in memory.
    """

    def __init__(
        self, adaptation: Adaptation, devices: DeviceStore, graphs: GraphStore, kept: int
    ) -> None:
        self.adaptation, self.devices, self.graphs = adaptation, devices, graphs
        self._kept = kept
        self._answers: OrderedDict[Hashable, bytes] = OrderedDict()
        self._lock = Lock()

    def swap(self, loaded: LoadedPredictor) -> None:
        """Answer with another predictor from now on."""
        self.adaptation.swap(loaded)

    def is_at_hand(self, asked: PredictIn) -> bool:
        """Whether looking up the device and the graph takes neither the disk nor a long list."""
        if self.adaptation.held() is None:
            return False
        given = asked.workload
        if isinstance(given, NetworkIn) and (
            not isinstance(given.graph, str) or self.graphs.held(given.graph) is None
        ):
            return False
        return isinstance(asked.device, Device) or self.devices.held(asked.device) is not None

    def question(self, asked: PredictIn) -> Question:
        """Look up the device and the graph.

        Raises:
            UnknownDevice, UnknownGraph, UnknownMetric, UnreadableModel: what was named is not here.
        """
        device = self._device(asked.device)
        metrics = tuple(asked.metrics) if asked.metrics is not None else tuple(UNITS)
        strange = [name for name in metrics if name not in UNITS]
        if strange:
            raise UnknownMetric(strange[0], UNITS)
        workload = workload_of(asked.workload, self.graphs.get)
        return question_about(Query(workload, device, asked.software), metrics)

    def before(self, question: Question) -> bytes | None:
        """The answer given to the same question before, as JSON; None when there is none."""
        key = self.adaptation.current().loaded.version, question.key
        with self._lock:
            answer = self._answers.get(key)
            if answer is not None:
                self._answers.move_to_end(key)
            return answer

    def predict(self, question: Question) -> bytes:
        """The answer as JSON, kept for the next time.

        Raises:
            UnanswerableQuery, UnknownPrecision: no predictor can answer.
        """
        in_use = self.adaptation.current()
        answer = to_json(answer_of(question, in_use))
        with self._lock:
            self._answers[in_use.loaded.version, question.key] = answer
            while len(self._answers) > self._kept:
                self._answers.popitem(last=False)
        return answer

    def _device(self, given: str | Device) -> Device:
        if isinstance(given, Device):
            return given
        return self.devices.held(given) or self.devices.get(given)


def question_about(query: Query, metrics: tuple[str, ...] = tuple(UNITS)) -> Question:
    """A question that needs no names looked up; equal content gives an equal key."""
    given = query.run
    if isinstance(given, Kernel):
        graph, size = OperatorGraph((given.operator,)), (0, "")
    else:
        graph, size = given.graph, (given.batch_size, given.phase)
    digest = graph.digest
    key = (given.kind, digest, *size, given.precision, query.device, query.software, metrics)
    return Question(query, metrics, None if given.kind == "kernel" else digest, key)


def answer_of(question: Question, in_use: InUse) -> dict[str, Any]:
    """The answer to one question, with the fields of `PredictionOut`.

    Raises:
        UnknownBandwidth: the device has no sheet.
        UnanswerableQuery, UnknownPrecision: no predictor can answer.
    """
    loaded = in_use.loaded
    query = question.query
    if isinstance(loaded.predictor, Chosen):
        query = loaded.predictor.seen(query)
    if not query.has_bound:
        raise UnknownBandwidth(query.device.name)
    # Sheets and shapes may be absurd; what comes of it is looked at below.
    with np.errstate(all="ignore"):
        bound = float(Roofline().predict([query]).values["latency_ms"][0])
        prediction = loaded.predictor.predict([query])[0]
    _check_finite(prediction, bound)
    unknown = unknown_operators(query.run)
    said = (limit_line(readable(line)) for line in prediction.limits)
    limits = [*_other_arithmetic(query), *dict.fromkeys(said)]
    if unknown and not limits_of("latency_ms", limits):
        count = sum(unknown.values())
        limits.insert(0, f"{count} operators are unknown and costed by their traffic alone")
    answered = [name for name in question.metrics if name in prediction.estimates]
    told = {line for name in answered for line in limits_of(name, limits)}
    return {
        "metrics": {
            name: _estimate(prediction, name, limits_of(name, limits)) for name in question.metrics
        },
        "missing": {
            name: _why_missing(query, name)
            for name in question.metrics
            if name not in prediction.estimates
        },
        "in_domain": not told,
        "limits": [line for line in limits if line in told],
        "breakdown_ms": dict(prediction.breakdown_ms),
        "roofline": {"latency_ms": bound},
        "unknown_operators": unknown,
        "device": {"name": query.device.name, "origin": query.device.origin},
        "graph": question.graph,
        "predictor": {
            "name": loaded.predictor.name,
            "version": loaded.version,
            "adapted_rows": in_use.rows.get(query.device, 0),
        },
    }


def _other_arithmetic(query: Query) -> list[str]:
    """A line when the device computes in another precision than was asked for."""
    wanted = COMPUTE_PRECISION[query.run.precision]
    used = query.device.computes_in(wanted)
    if used == wanted:
        return []
    return [f"the device's sheet has no {wanted} peak; its {used} rate is taken"]


def limits_of(metric: str, limits: Sequence[str]) -> list[str]:
    """The limits that concern a metric.

    A line that begins with `power:` or `memory:` concerns that alone, every other one the time;
    energy is power x time.
    """
    if metric.endswith("_mib"):
        topics = {"memory"}
    else:
        topics = {"power_w": {"power"}, "energy_j": {"power", "time"}}.get(metric, {"time"})
    return [line for line in limits if _topic(line) in topics]


def _topic(limit: str) -> str:
    head = limit.partition(":")[0]
    return head if head in ("power", "memory") else "time"


def unknown_operators(asked: Kernel | Network | OperatorGraph) -> dict[str, int]:
    """Names of operators that no reader knows -> how often, the names in sound Unicode."""
    if isinstance(asked, Kernel):
        op = asked.operator
        return {readable(op.name): 1} if op.kind == "unknown" else {}
    graph = asked.graph if isinstance(asked, Network) else asked
    return {readable(name): count for name, count in graph.unknown.items()}


def readable(text: str) -> str:
    """Text that can be written as UTF-8: JSON may hold halves of characters."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _check_finite(prediction: Prediction, bound: float) -> None:
    ends = (x for e in prediction.estimates.values() for x in (e.value, e.low, e.high))
    if not all(x is None or isfinite(x) for x in (bound, *ends)):
        raise UnanswerableQuery(
            "The answer is beyond every number; check the sizes and the figures of the spec sheet."
        )


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
