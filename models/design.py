"""Cycles and area of hardware designs: boosters over programs, a process on a program's few rows.

Boosters learn from many programs what directives do to the analytic bounds of `features.directives`.
Once some designs of a program are measured, a Gaussian process over the same features takes over
for that program; the boosters' answer is one of its inputs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Design
from forerun.features.directives import design_row
from forerun.models.artifact import read_content, write_content
from forerun.models.boosters import BoosterBag
from forerun.models.prediction import Predictions

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
METRICS = ("latency_cycles", "util_dsp", "util_bram", "util_lut", "util_ff")
FLOORS: Mapping[str, float] = {
    "latency_cycles": 0.0,
    "util_dsp": 0.02,
    "util_bram": 0.02,
    "util_lut": 0.02,
    "util_ff": 0.01,
}
"""Added before the logarithm: a share of zero is a measurement."""

SETTINGS: Mapping[str, Any] = {
    "learning_rate": 0.06,
    "num_leaves": 31,
    "min_data_in_leaf": 10,
    "feature_fraction": 0.5,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "lambda_l2": 1.0,
    "objective": "l2",
}


@dataclass(frozen=True)
class DesignBoost:
    """Designs of programs never seen, seen in training, or known from a few of their rows."""

    seed: int = 0
    bag: int = 1
    trees: int = 200
    names: tuple[str, ...] = ()
    boosters: Mapping[str, BoosterBag] = field(default_factory=dict)
    name: ClassVar[str] = "design_boost"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Cycles and four shares of the chip."""
        return METRICS

    def answers(self, query: Query) -> bool:
        """Designs, once fitted."""
        return bool(self.boosters) and isinstance(query.workload, Design)

    def fit(self, measurements: Measurements) -> Self:
        """Fit a bag a metric on log targets, programs weighted alike by root of their rows."""
        rows = [design_row(_design(q)) for q in measurements.queries]
        names = tuple(rows[0])
        matrix = np.array([[row[name] for name in names] for row in rows])
        _, place, counts = np.unique(
            measurements.groups["kernel"], return_inverse=True, return_counts=True
        )
        weights = 1.0 / np.sqrt(counts[place])
        boosters = {}
        for metric in METRICS:
            target = np.log2(measurements.values[metric] + FLOORS[metric])
            boosters[metric] = BoosterBag.fit(
                matrix,
                target,
                parameters=SETTINGS,
                trees=self.trees,
                seeds=range(self.seed * 100, self.seed * 100 + self.bag),
                weights=weights / weights.mean(),
            )
        return replace(self, names=names, boosters=boosters)

    def adapt(self, measurements: Measurements) -> Self:
        """Not yet."""
        return self

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Answers of the boosters."""
        rows = [design_row(_design(q)) for q in queries]
        matrix = np.array([[row[name] for name in self.names] for row in rows])
        values = {
            metric: np.maximum(2.0 ** bag.predict(matrix) - FLOORS[metric], 1e-4)
            for metric, bag in self.boosters.items()
        }
        return Predictions(values)

    def save(self, folder: Path) -> None:
        """Boosters as LightGBM text, the rest as JSON."""
        write_content(folder, self.name, {"seed": self.seed, "names": self.names, "bag": self.bag})
        for metric, bag in self.boosters.items():
            bag.save(folder, metric)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote."""
        content = read_content(folder, cls.name)
        boosters = {m: BoosterBag.load(folder, m, content["bag"]) for m in METRICS}
        return cls(seed=content["seed"], bag=content["bag"], names=tuple(content["names"]), boosters=boosters)


def _design(query: Query) -> Design:
    assert isinstance(query.workload, Design)
    return query.workload
