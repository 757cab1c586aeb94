"""Cached answers by the bytes of a request, which are found before the request is parsed."""

from collections.abc import Callable
from dataclasses import dataclass
from weakref import ref

from forerun.data.device import Device
from forerun.data.graph import OperatorGraph
from forerun.data.workload import Network
from forerun.features.recent import Recent
from forerun.models.answers.served_models import InUse
from forerun.service.answers.question import Question
from forerun.service.schemas.prediction import NetworkIn, PredictIn
from forerun.service.stores.devices import DeviceStore
from forerun.service.stores.graphs import GraphStore

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
