"""The predictors that answer queries, with what they were adapted to."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.models.answers.trust import subject_of
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

    def adapted_to(self, measurements: Measurements) -> Self:
        """The predictor adapted to measured rows, of one or several devices."""
        devices = [query.device for query in measurements.queries]
        own = {
            device: measurements.take([row for row, one in enumerate(devices) if one == device])
            for device in dict.fromkeys(devices)
        }
        adapted = replace(self.loaded, predictor=self.loaded.predictor.adapt(measurements))
        counts = Counter(self.rows) + Counter({device: len(rows) for device, rows in own.items()})
        measured = {device: subjects_measured(rows) for device, rows in own.items()}
        return replace(self, loaded=adapted, rows=counts, measured={**self.measured, **measured})


def subjects_measured(rows: Measurements) -> dict[str, frozenset[str]]:
    """Metric -> what any of the rows has a value of, as in `InUse.measured`."""
    subjects = np.array([subject_of(query) for query in rows.queries], dtype=np.str_)
    known = {name: np.isfinite(column) for name, column in rows.values.items()}
    return {name: frozenset(subjects[own].tolist()) for name, own in known.items() if own.any()}
