"""Measurements that come with released predictors, which adapt to them wherever they answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from forerun.data.errors import BadArtifact
from forerun.data.graph import OperatorGraph
from forerun.service.schemas.measured_rows import MeasuredRow
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


class _Set(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: str
    device: str
    time: AwareDatetime
    rows: tuple[MeasuredRow, ...]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format: Literal["forerun.support/1"] = "forerun.support/1"
    sets: tuple[_Set, ...]
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
    sets = tuple(MeasurementSet(own.id, own.device, own.time, own.rows) for own in file.sets)
    return ReleasedMeasurements(sets, graphs)


def text_of(sets: Sequence[MeasurementSet], graphs: Mapping[str, OperatorGraph]) -> str:
    """The text that a release is sealed with.

    Args:
        sets: the measurements; networks among their workloads are named by digest.
        graphs: digest -> graph.
    """
    plain = [
        _Set(
            id=own.id,
            device=own.device,
            time=own.time,
            rows=tuple(row.model_copy(update={"answer": None}) for row in own.rows),
        )
        for own in sets
    ]
    named = {digest: graphs[digest].to_json() for digest in sorted(graphs)}
    return _File(sets=tuple(plain), graphs=named).model_dump_json(exclude_none=True) + "\n"
