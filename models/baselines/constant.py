"""The simplest baseline: the geometric mean of what was measured, the plain one with zeros."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.models.artifact.sealed_folder import read_content, write_content
from forerun.models.prediction import Predictions


@dataclass(frozen=True)
class Constant:
    """Always the geometric mean of the training rows.

    Attributes:
        means: metric -> the answer; empty before `fit`.
    """

    means: Mapping[str, float] = field(default_factory=dict)
    name: ClassVar[str] = "constant"

    @property
    def metrics(self) -> tuple[str, ...]:
        """What the training rows had."""
        return tuple(self.means)

    def answers(self, query: Query) -> bool:
        """Everything, once it is fitted."""
        return bool(self.means)

    def fit(self, measurements: Measurements) -> Self:
        """The geometric mean of each metric."""
        means = {
            metric: _mean(measured[~np.isnan(measured)])
            for metric, measured in measurements.values.items()
            if not np.isnan(measured).all()
        }
        return replace(self, means=means)

    def adapt(self, measurements: Measurements) -> Self:
        """The geometric mean of the few rows instead."""
        return self.fit(measurements)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """The same values for every query."""
        return Predictions({m: np.full(len(queries), mean) for m, mean in self.means.items()})

    def save(self, folder: Path) -> None:
        """Write the means."""
        write_content(folder, self.name, {"means": dict(self.means)})

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote."""
        return cls(dict(read_content(folder, cls.name)["means"]))


def _mean(measured: NDArray[np.float64]) -> float:
    """Geometric, but the plain mean of values that a logarithm does not take."""
    if (measured > 0).all():
        return float(np.exp(np.log(measured).mean()))
    return float(measured.mean())
