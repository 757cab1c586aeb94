"""Resolve requests and answer them, with a cache of earlier answers."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar
from weakref import ref

from forerun.data.columns import groups_of
from forerun.data.device import Device
from forerun.data.errors import InputError
from forerun.data.graph import OperatorGraph
from forerun.data.workload import Network
from forerun.features.caches import Recent
from forerun.features.deadline import check
from forerun.models.answers.served_models import InUse
from forerun.models.artifact.sealed_folder import LoadedPredictor
from forerun.service.adaptation.predictor_in_use import Adaptation, adaptation_of
from forerun.service.answers.answer import answers_to
from forerun.service.answers.llm.estimates import llm_estimates
from forerun.service.answers.question import Question
from forerun.service.answers.requested import question_of
from forerun.service.http.telemetry import Telemetry
from forerun.service.http.trial import Shares, Trial
from forerun.service.requests.record import stage
from forerun.service.schemas.answers import PredictionOut, ServingOut
from forerun.service.schemas.measured_rows import MeasuredRow
from forerun.service.schemas.measurements import DriftOut
from forerun.service.schemas.prediction import KernelIn, NetworkIn, PredictIn
from forerun.service.schemas.serving import LlmEstimateIn
from forerun.service.settings import Settings
from forerun.service.stores.devices import DeviceStore, devices_of
from forerun.service.stores.graphs import GraphStore, graphs_of
from forerun.service.stores.measurement_sets import RepeatableRequest

if TYPE_CHECKING:
    from forerun.service.answers.drift import Drift
    from forerun.service.answers.observing import Observed

Outcome = TypeVar("Outcome")
LARGEST_BYTES = 4 * 2**10
"""Size of the largest body that is kept, with room for a spec sheet."""


@dataclass(frozen=True, slots=True)
class _Known:
    """An answer, and all that it was made of.

    Attributes:
        answer: the answer as JSON.
        in_use: the predictor that answered.
        device_name: name by which the request gave the device; None for a spec sheet.
        device: the device.
        digest: digest by which the request gave the graph; None for one operator.
        graph: the graph, as long as it is in memory; None for one operator.
    """

    answer: bytes
    in_use: InUse
    device_name: str | None
    device: Device
    digest: str | None
    graph: "ref[OperatorGraph] | None"


class KnownBodies:
    """Answers to requests that were sent before in the same bytes.

    An answer is given only as long as the predictor in use, the device of that name and the graph
    of that digest are the objects that it was made of. All of them are replaced by a change.

    Args:
        is_held: whether a predictor is in use as it is.
        devices: spec sheets.
        graphs: uploaded graphs.
        kept: largest number of requests.
    """

    def __init__(
        self,
        is_held: Callable[[InUse], bool],
        devices: DeviceStore,
        graphs: GraphStore,
        kept: int,
    ) -> None:
        self._is_held, self._devices, self._graphs = is_held, devices, graphs
        self._known: Recent[bytes, _Known] = Recent(kept)

    def answer(self, body: bytes) -> bytes | None:
        """The answer to a request of these bytes, as JSON; None where it is not known any more."""
        known = self._known.get(body)
        if known is None or not self._is_held(known.in_use):
            return None
        name, digest = known.device_name, known.digest
        if name is not None and self._devices.held(name) is not known.device:
            return None
        if known.graph is None or digest is None:
            return known.answer
        graph = self._graphs.held(digest)
        return known.answer if graph is not None and graph is known.graph() else None

    def keep(
        self, body: bytes, asked: PredictIn, question: Question, in_use: InUse, answer: bytes
    ) -> None:
        """Keep the answer to a request, unless it is large.

        Args:
            body: bytes of the request.
            asked: its content, about a graph by its digest or about one operator.
            question: the question that it asks.
            in_use: the predictor that answered.
            answer: the answer, as JSON.
        """
        if len(body) > LARGEST_BYTES:
            return
        given, workload = asked.workload, question.query.workload
        digest = given.graph if isinstance(given, NetworkIn) else None
        assert digest is None or isinstance(digest, str)
        self._known.put(
            body,
            _Known(
                answer,
                in_use,
                asked.device if isinstance(asked.device, str) else None,
                question.query.device,
                digest,
                ref(workload.graph) if isinstance(workload, Network) else None,
            ),
        )


MOST_OF_CLUSTER = 500
"""Answers about devices of a cluster that are kept: scores of nodes follow a filter of them."""


class Answers:
    """Answers questions with the predictor in use, and caches the answers.

    Args:
        adaptation: the predictor, adapted to measurements of users.
        devices: spec sheets.
        graphs: uploaded graphs.
        kept: largest number of cached answers.
        trial: the candidate on trial; when None there never is one.
        computed: called with all answers that were computed, and the errors among them.

    Attributes:
        bodies: cached answers by the bytes of the request.
    """

    def __init__(
        self,
        adaptation: Adaptation,
        devices: DeviceStore,
        graphs: GraphStore,
        kept: int,
        trial: Trial | None = None,
        computed: Callable[[Iterable[object]], None] = lambda answers: None,
    ) -> None:
        self._computed = computed
        self.adaptation, self.devices, self.graphs = adaptation, devices, graphs
        self.trial = trial or Trial(Shares(0.0, 0.0), Telemetry())
        self._kept = kept
        self._answers: Recent[Hashable, bytes] = Recent(kept)
        self._predicted: Recent[Hashable, PredictionOut | InputError] = Recent(MOST_OF_CLUSTER)
        self._served: Recent[Hashable, ServingOut | InputError] = Recent(MOST_OF_CLUSTER)
        self.bodies = self._no_bodies()

    @cached_property
    def drift(self) -> "Drift":
        """What the stored observations say of the answers."""
        from forerun.service.answers.drift import Drift

        return Drift(self.adaptation.store, lambda: [v for v in self.versions if v])

    @property
    def versions(self) -> tuple[str, str | None]:
        """Versions of the predictors in use and of the candidate, None without one."""
        return self.adaptation.base_version, self.trial.version

    def swap(self, loaded: LoadedPredictor, candidate: LoadedPredictor | None = None) -> None:
        """Replace the base predictor and the candidate; both are adapted to the measurements."""
        if candidate is not None or self.trial.version is not None:
            self.trial.change(self.adaptation, candidate)
            self.bodies = self._no_bodies()  # others are the candidate's now
        if loaded is not self.adaptation.loaded:
            self.adaptation.swap(loaded)

    def in_use(self, question: Question, champion: InUse | None = None) -> InUse:
        """The predictor that answers a question: the one in use, or the candidate on trial.

        Args:
            question: the question.
            champion: the predictor in use; the current one when None.
        """
        candidate = self.trial.chosen(question)
        if candidate is not None:
            return candidate.current()
        return champion or self.adaptation.current()

    def held_for(self, question: Question, champion: InUse) -> InUse | None:
        """As `in_use`; None where a candidate has to be adapted first."""
        candidate = self.trial.chosen(question)
        return champion if candidate is None else candidate.held()

    def _no_bodies(self) -> KnownBodies:
        return KnownBodies(self._is_held, self.devices, self.graphs, self._kept)

    def _is_held(self, in_use: InUse) -> bool:
        if self.adaptation.held() is in_use:
            return True
        candidate = self.trial.adaptation
        return candidate is not None and candidate.held() is in_use

    def at_hand(self, asked: PredictIn) -> InUse | None:
        """The predictor in use; None unless the device and the graph are in memory as well."""
        given = asked.workload
        if not isinstance(given, KernelIn | NetworkIn):
            return None
        if isinstance(given, NetworkIn) and (
            not isinstance(given.graph, str) or self.graphs.held(given.graph) is None
        ):
            return None
        if isinstance(asked.device, str) and self.devices.held(asked.device) is None:
            return None
        return self.adaptation.held()

    def question(self, asked: PredictIn, in_use: InUse | None = None) -> Question:
        """Resolve the names in a request about a workload of any kind.

        Args:
            asked: the request.
            in_use: the predictor in use; the current one when None.

        Raises:
            InputError: as `question_of`.
        """
        predictor = (in_use or self.adaptation.current()).loaded.predictor
        return question_of(asked, self.device, self.graphs.get, predictor)

    def before(self, question: Question, in_use: InUse | None = None) -> bytes | None:
        """The cached answer to an equal question, as JSON; None when there is none."""
        version = (in_use or self.in_use(question)).loaded.version
        return self._answers.get((version, question.key))

    def predict(self, question: Question) -> bytes:
        """Predict the answer, as JSON, and cache it.

        Raises:
            UnanswerableQuery, UnknownPrecision: no predictor can answer.
            DeadlineExceeded: the time of the request is over.
        """
        (answer,) = self.predict_all([question])
        if isinstance(answer, InputError):
            raise answer
        return answer

    def predict_all(self, questions: Sequence[Question]) -> list[bytes | InputError]:
        """Predict n answers in one call, each as JSON or the error that prevents it; cache them.

        Raises:
            DeadlineExceeded: the time of the request is over.
        """
        champion = self.adaptation.current()
        chosen = [self.in_use(question, champion) for question in questions]
        found: dict[int, bytes | InputError] = {}
        for rows in groups_of(one.loaded.version for one in chosen).values():
            in_use, asked = chosen[rows[0]], [questions[row] for row in rows]
            with stage("predict"):
                outcomes = answers_to(asked, in_use)
            # What ended halfway may look like a metric that nobody answers: it is not cached.
            check()
            self._computed(outcomes)
            with stage("write"):
                found |= zip(rows, map(_written, outcomes), strict=True)
            for row, question, outcome in zip(rows, asked, outcomes, strict=True):
                answer = found[row]
                if isinstance(answer, bytes) and not isinstance(outcome, InputError):
                    self._answers.put((in_use.loaded.version, question.key), answer)
                    self.trial.compare(question, outcome)
        return [found[row] for row in range(len(questions))]

    def observe(
        self, name: str, rows: Sequence[MeasuredRow], request: RepeatableRequest | None = None
    ) -> "Observed":
        """Store observations of a device, which change no answer; raises as `observing.observe`."""
        from forerun.service.answers.observing import observe

        devices, in_use = self.devices, self.in_use
        return observe(self.adaptation, devices, name, rows, request=request, in_use=in_use)

    def report(self, device: str | None = None, version: str | None = None) -> DriftOut:
        """How good the answers about observations were, and what changed.

        Args:
            device: name of a device; None for all.
            version: as in `Drift.report`.

        Raises:
            UnknownDevice: no device has that name.
        """
        name = None if device is None else self.devices.get(device).name
        return self.drift.report(name, version)

    def predicted(self, questions: Sequence[Question]) -> list[PredictionOut | InputError]:
        """The answers to n different questions or the errors in place of them; the last are kept.

        Raises:
            DeadlineExceeded: the time of the request is over.
        """
        return self._kept_or_new(
            self._predicted,
            [question.key for question in questions],
            lambda rows, in_use: answers_to([questions[row] for row in rows], in_use),
        )

    def served(self, asked: Sequence[LlmEstimateIn]) -> list[ServingOut | InputError]:
        """What n different requests about language models get; the last answers are kept.

        Raises:
            DeadlineExceeded: the time of the request is over.
        """
        return self._kept_or_new(
            self._served,
            [one.model_dump_json() for one in asked],
            lambda rows, in_use: llm_estimates([asked[row] for row in rows], self.device, in_use),
        )

    def _kept_or_new(
        self,
        kept: Recent[Hashable, Outcome],
        keys: Sequence[Hashable],
        ask: Callable[[Sequence[int], InUse], list[Outcome]],
    ) -> list[Outcome]:
        """The outcome of each key; `ask` answers those rows whose outcome is not kept."""
        in_use = self.adaptation.current()

        def new(missing: list[int]) -> list[Outcome]:
            with stage("predict"):
                found = ask(missing, in_use)
            check()  # What ended halfway is not kept, as in `predict_all`.
            self._computed(found)
            return found

        return kept.of_each([(in_use.loaded.version, key) for key in keys], new)

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


def answers_with(
    settings: Settings,
    predictor: LoadedPredictor,
    trial: Trial | None = None,
    computed: Callable[[Iterable[object]], None] = lambda answers: None,
) -> Answers:
    """The answers of a predictor with the devices, graphs and measurements of the settings.

    Args:
        settings: where these are kept.
        predictor: the predictor.
        trial: as in `Answers`.
        computed: as in `Answers`.
    """
    graphs, devices = graphs_of(settings), devices_of(settings)
    adaptation = adaptation_of(settings, predictor, devices, graphs.get)
    return Answers(adaptation, devices, graphs, settings.answers_kept, trial, computed)


def _written(outcome: PredictionOut | InputError) -> bytes | InputError:
    return outcome if isinstance(outcome, InputError) else outcome.model_dump_json().encode()
