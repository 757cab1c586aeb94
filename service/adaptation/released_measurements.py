"""Measurements that come with released predictors, which adapt to them wherever they answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from forerun.data.errors import BadArtifact
from forerun.data.graph import OperatorGraph
from forerun.service.stores.measurement_sets import MeasurementSet


@dataclass(frozen=True, slots=True)
class ReleasedMeasurements:
    """Measurements of a release.

    Attributes:
        sets: the measurements, each set of one device.
        graphs: digest -> graph, of all networks among their workloads.
    """

    sets: tuple[MeasurementSet, ...] = ()
    graphs: Mapping[str, OperatorGraph] = field(default_factory=dict)


OF_A_STORE = {"format": True, "source": True, "families": True, "request": True, "answer": True}
UNWRITTEN: Any = {"sets": {"__all__": {**OF_A_STORE, "rows": {"__all__": {"answer"}}}}}
"""What a release leaves out: answers that were given, and what only a store needs."""


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format: Literal["forerun.support/1"] = "forerun.support/1"
    sets: tuple[MeasurementSet, ...]
    graphs: dict[str, dict[str, Any]]


def released_measurements(text: str) -> ReleasedMeasurements:
    """The measurements in the text of a release; none in an empty one.

    Raises:
        BadArtifact: the text is not what `text_of` writes.
    """
    if not text:
        return ReleasedMeasurements()
    try:
        file = _File.model_validate_json(text)
        graphs = {digest: OperatorGraph.from_json(own) for digest, own in file.graphs.items()}
    except (ValidationError, ValueError, KeyError, TypeError) as error:
        raise BadArtifact(f"support.json of the predictors cannot be read: {error}") from None
    return ReleasedMeasurements(file.sets, graphs)


def text_of(sets: Sequence[MeasurementSet], graphs: Mapping[str, OperatorGraph]) -> str:
    """The text that a release is sealed with.

    Args:
        sets: the measurements; networks among their workloads are named by digest.
        graphs: digest -> graph.
    """
    file = _File(sets=tuple(sets), graphs={d: graphs[d].to_json() for d in sorted(graphs)})
    return file.model_dump_json(exclude_none=True, exclude=UNWRITTEN) + "\n"
