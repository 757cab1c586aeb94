"""The constant baseline: the geometric mean of the training values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.prediction import Predictions


@dataclass(frozen=True)
class Constant(StoredPredictor):
    """Predicts the geometric mean of the training values for every query.

    Attributes:
        means: metric -> mean; empty before `fit`. Metrics with non-positive values use the
            arithmetic mean.
    """

    means: Mapping[str, float] = field(default_factory=dict)
    name: ClassVar[str] = "constant"

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the training rows."""
        return tuple(self.means)

    def answers(self, query: Query) -> bool:
        """True for any query, after `fit`."""
        return bool(self.means)

    def fit(self, measurements: Measurements) -> Self:
        """Compute the mean of each metric; missing values are ignored."""
        means = {
            metric: _mean(measured[~np.isnan(measured)])
            for metric, measured in measurements.values.items()
            if not np.isnan(measured).all()
        }
        return replace(self, means=means)

    def adapt(self, measurements: Measurements) -> Self:
        """Replace the means by those of the support rows."""
        return self.fit(measurements)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """The same values for every query."""
        return Predictions({m: np.full(len(queries), mean) for m, mean in self.means.items()})


def _mean(measured: NDArray[np.float64]) -> float:
    """The geometric mean, or the arithmetic mean if a value is not positive."""
    if (measured > 0).all():
        return float(np.exp(np.log(measured).mean()))
    return float(measured.mean())
