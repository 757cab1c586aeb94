"""The simplest baseline: the geometric mean of what was measured."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.models.artifact import read_content, write_content
from forerun.models.prediction import Predictions


@dataclass(frozen=True)
class Constant:
    """Always the geometric mean of the training rows.

    Attributes:
        value_ms: the answer, NaN before `fit`.
    """

    value_ms: float = float("nan")
    name: ClassVar[str] = "constant"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Latency only."""
        return ("latency_ms",)

    def answers(self, query: Query) -> bool:
        """Everything, once it is fitted."""
        return not np.isnan(self.value_ms)

    def fit(self, measurements: Measurements) -> Self:
        """The geometric mean of `latency_ms`."""
        measured = measurements.values["latency_ms"]
        return replace(self, value_ms=float(np.exp(np.nanmean(np.log(measured)))))

    def adapt(self, measurements: Measurements) -> Self:
        """The geometric mean of the few rows instead."""
        return self.fit(measurements)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """The same value for every query."""
        return Predictions({"latency_ms": np.full(len(queries), self.value_ms)})

    def save(self, folder: Path) -> None:
        """Write the value."""
        write_content(folder, self.name, {"value_ms": self.value_ms})

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote."""
        return cls(float(read_content(folder, cls.name)["value_ms"]))
