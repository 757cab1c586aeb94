"""Resolve requests and answer them, with a cache of earlier answers."""

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock

from forerun.data.device import Device
from forerun.features.deadline import check
from forerun.models.artifact.loading import LoadedPredictor
from forerun.service.adaptation.predictor_in_use import Adaptation
from forerun.service.answers.answer import answer_of
from forerun.service.answers.question import Question
from forerun.service.answers.requested import question_of
from forerun.service.schemas.prediction import KernelIn, NetworkIn, PredictIn
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
        if not isinstance(given, KernelIn | NetworkIn):
            return False
        if isinstance(given, NetworkIn) and (
            not isinstance(given.graph, str) or self.graphs.held(given.graph) is None
        ):
            return False
        return isinstance(asked.device, Device) or self.devices.held(asked.device) is not None

    def question(self, asked: PredictIn) -> Question:
        """Resolve the names in a request about a workload of any kind.

        Raises:
            InputError: as `question_of`.
        """
        predictor = self.adaptation.current().loaded.predictor
        return question_of(asked, self.device, self.graphs.get, predictor)

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
            DeadlineExceeded: the time of the request is over.
        """
        in_use = self.adaptation.current()
        answer = answer_of(question, in_use).model_dump_json().encode()
        # What ended halfway may look like a metric that nobody answers: it is not cached.
        check()
        with self._lock:
            self._answers[in_use.loaded.version, question.key] = answer
            while len(self._answers) > self._kept:
                self._answers.popitem(last=False)
        return answer

    def delete_graph(self, digest: str) -> None:
        """Delete an uploaded graph.

        Raises:
            StillInUse: measurements that are in use were made with it.
            UnknownGraph, CannotStore: as `GraphStore.delete`.
        """
        self.adaptation.store.check_graph_unused(digest)
        self.graphs.delete(digest)

    def delete_device(self, name: str) -> None:
        """Delete a registered device.

        Raises:
            StillInUse: measurements of it are in use.
            UnknownDevice, TakenName, CannotStore: as `DeviceStore.delete`.
        """
        self.adaptation.store.check_device_unused(self.devices.get(name).name)
        self.devices.delete(name)

    def device(self, given: str | Device) -> Device:
        """The device of that name, or the given sheet itself.

        Raises:
            UnknownDevice: no device has that name.
        """
        if isinstance(given, Device):
            return given
        return self.devices.held(given) or self.devices.get(given)
