"""Resolve requests and answer them, with a cache of earlier answers."""

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock

from forerun.data.device import Device
from forerun.data.errors import UnknownMetric
from forerun.data.query import Query
from forerun.models.artifact.loading import LoadedPredictor
from forerun.service.adaptation.predictor_in_use import Adaptation
from forerun.service.answers.answer import answer_of
from forerun.service.answers.question import UNITS, Question, question_about
from forerun.service.schemas.prediction import NetworkIn, PredictIn
from forerun.service.schemas.workloads import operation_of, usual_software, workload_of
from forerun.service.stores.devices import DeviceStore
from forerun.service.stores.graphs import GraphStore


class Answers:
    """Answers questions with the predictor in use, and caches the answers.

    Args:
        adaptation: the predictor, adapted to measurements of users.
        devices: spec sheets.
        graphs: uploaded graphs.
        kept: largest number of cached answers.
    """

    def __init__(
        self, adaptation: Adaptation, devices: DeviceStore, graphs: GraphStore, kept: int
    ) -> None:
        self.adaptation, self.devices, self.graphs = adaptation, devices, graphs
        self._kept = kept
        self._answers: OrderedDict[Hashable, bytes] = OrderedDict()
        self._lock = Lock()

    def swap(self, loaded: LoadedPredictor) -> None:
        """Replace the base predictor; the adaptation is repeated on the new one."""
        self.adaptation.swap(loaded)

    def is_at_hand(self, asked: PredictIn) -> bool:
        """Whether the device and the graph are in memory, so that no disk access is needed."""
        if self.adaptation.held() is None:
            return False
        given = asked.workload
        if isinstance(given, NetworkIn) and (
            not isinstance(given.graph, str) or self.graphs.held(given.graph) is None
        ):
            return False
        return isinstance(asked.device, Device) or self.devices.held(asked.device) is not None

    def question(self, asked: PredictIn) -> Question:
        """Resolve the device and the graph of a request.

        Raises:
            UnknownDevice, UnknownGraph, UnknownMetric: a name in the request is not known.
            UnreadableModel: the graph in the request is not valid.
            BadTrainingSetup: the options do not fit the phase, or contradict each other.
        """
        device = self.device(asked.device)
        metrics = tuple(asked.metrics) if asked.metrics is not None else tuple(UNITS)
        unknown = [name for name in metrics if name not in UNITS]
        if unknown:
            raise UnknownMetric(unknown[0], UNITS)
        workload = workload_of(asked.workload, self.graphs.get)
        operation = operation_of(workload, asked.operation.power_limit_w)
        software = usual_software(asked.software, workload, device)
        return question_about(Query(workload, device, software, operation), metrics)

    def before(self, question: Question) -> bytes | None:
        """The cached answer to an equal question, as JSON; None when there is none."""
        key = self.adaptation.current().loaded.version, question.key
        with self._lock:
            answer = self._answers.get(key)
            if answer is not None:
                self._answers.move_to_end(key)
            return answer

    def predict(self, question: Question) -> bytes:
        """Predict the answer, as JSON, and cache it.

        Raises:
            UnanswerableQuery, UnknownPrecision: no predictor can answer.
        """
        in_use = self.adaptation.current()
        answer = answer_of(question, in_use).model_dump_json().encode()
        with self._lock:
            self._answers[in_use.loaded.version, question.key] = answer
            while len(self._answers) > self._kept:
                self._answers.popitem(last=False)
        return answer

    def device(self, given: str | Device) -> Device:
        """The device of that name, or the given sheet itself.

        Raises:
            UnknownDevice: no device has that name.
        """
        if isinstance(given, Device):
            return given
        return self.devices.held(given) or self.devices.get(given)
