"""The predictor that answers queries, with what it was adapted to."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from forerun.data.device import Device
from forerun.models.artifact.loading import LoadedPredictor


@dataclass(frozen=True, slots=True)
class InUse:
    """The predictor that answers queries.

    Attributes:
        loaded: the predictor; its version identifies the measurements that it was adapted to.
        rows: device -> number of its measurements that the adaptation used.
        measured: device -> metric -> what it was measured of in those rows: classes of operators,
            and kinds of other workloads.
    """

    loaded: LoadedPredictor
    rows: Mapping[Device, int] = field(default_factory=dict)
    measured: Mapping[Device, Mapping[str, frozenset[str]]] = field(default_factory=dict)
