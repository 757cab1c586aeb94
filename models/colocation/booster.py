"""Relative speed of co-located programs by boosters on window statistics, and a baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from forerun.data.columns import Column, rows_by
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Colocation
from forerun.features.host_windows import HOST_METRICS, NAMES, RESOURCES, Resource
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.colocation.base import ColocationBase, Engine
from forerun.models.colocation.features import METRICS, ColocationRows
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.prediction import Predictions
from forerun.models.predictor import SETTING

VIEWS: Mapping[str, tuple[tuple[Resource, ...], ...]] = {
    "p_cpu": (
        ("cache", "disk"),
        ("cache", "memory_bandwidth"),
        ("cache", "cpu", "network"),
        RESOURCES,
    ),
    "p_wall": (("cpu",), ("cpu", "cache", "memory_bandwidth"), RESOURCES),
}
"""Metric -> resources whose metrics are the features of each member of the ensemble. On held-out
neighbours, the median over the members is more accurate than each of them, because they overfit
different features. Wall time depends on who has the CPU, CPU time on the caches."""
COLUMNS: Mapping[str, Sequence[Sequence[int]]] = {
    metric: [
        [column for column, name in enumerate(NAMES) if HOST_METRICS[name].resource in view]
        for view in views
    ]
    for metric, views in VIEWS.items()
}
"""Metric -> positions in NAMES of the metrics of each view."""
TREES = 200
PARAMETERS: dict[str, Any] = {
    "objective": "l1",
    "learning_rate": 0.05,
    "num_leaves": 7,
    "min_data_in_leaf": 5,
    "feature_fraction": 0.6,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "lambda_l2": 1.0,
}


@dataclass(frozen=True)
class BoostEngine:
    """An ensemble of bags of boosters, one per view, whose median is the prediction.

    Attributes:
        metric: that it predicts.
        views: one bag for each of `VIEWS[metric]`.
    """

    metric: str
    views: tuple[BoosterBag, ...]

    @classmethod
    def fit(cls, metric: str, rows: ColocationRows, target: Column, seeds: Sequence[int]) -> Self:
        """Fit one bag per view to n targets; a bag holds one booster per seed."""
        bags = [
            BoosterBag.fit(
                rows.matrix(columns), target, parameters=PARAMETERS, trees=TREES, seeds=seeds
            )
            for columns in COLUMNS[metric]
        ]
        return cls(metric, tuple(bags))

    def predict(self, rows: ColocationRows) -> Column:
        """Median over the views, shape (n,)."""
        predictions = [
            bag.predict(rows.matrix(columns))
            for columns, bag in zip(COLUMNS[self.metric], self.views, strict=True)
        ]
        median: Column = np.median(predictions, axis=0)
        return median


@dataclass(frozen=True)
class ColocationBoost(ColocationBase):
    """LightGBM on window statistics and the program's profile.

    Attributes:
        bags: boosters per view, with different seeds.
    """

    name: ClassVar[str] = "colocation_boost"
    engines: Mapping[str, BoostEngine] = field(default_factory=dict)
    bags: int = field(default=2, metadata=SETTING)

    def engine(self, metric: str, rows: ColocationRows, target: Column) -> Engine:
        """An ensemble of boosters fitted to n standardised targets."""
        return BoostEngine.fit(metric, rows, target, range(self.seed, self.seed + self.bags))

    def lighter(self) -> Self:
        """The same predictor with one booster per view."""
        return replace(self, bags=1)


@dataclass(frozen=True)
class ProgramMean(StoredPredictor):
    """Baseline: a program's mean relative speed over all neighbours, or the mean over programs.

    Attributes:
        means: (metric, program) -> mean over the program's runs.
        common: metric -> mean over programs, for a program that was not measured.
    """

    name: ClassVar[str] = "program_mean"
    means: dict[tuple[str, str], float] = field(default_factory=dict)
    common: dict[str, float] = field(default_factory=dict)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics in the training set; both of METRICS before `fit`."""
        return tuple(m for m in METRICS if m in self.common or not self.common)

    def answers(self, query: Query) -> bool:
        """Whether the query is about a co-located program; none is answered before `fit`."""
        return isinstance(query.workload, Colocation) and bool(self.common)

    def fit(self, measurements: Measurements) -> Self:
        """Compute the means of each metric."""
        rows_of = rows_by(query.colocation.profile.program for query in measurements.queries)
        means: dict[tuple[str, str], float] = {}
        common: dict[str, float] = {}
        for metric in METRICS:
            values = measurements.column(metric)
            own = {
                name: float(np.nanmean(values[rows]))
                for name, rows in rows_of.items()
                if np.isfinite(values[rows]).any()
            }
            if own:
                common[metric] = float(np.mean(list(own.values())))
                means |= {(metric, name): mean for name, mean in own.items()}
        return replace(self, means=means, common=common)

    def adapt(self, measurements: Measurements) -> Self:
        """Add the means of programs that were not in the training set."""
        other = type(self)().fit(measurements)
        return replace(self, means={**other.means, **self.means})

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Mean relative speeds, without intervals."""
        names = [query.colocation.profile.program for query in queries]
        values = {
            m: np.array([self.means.get((m, name), self.common[m]) for name in names])
            for m in self.metrics
        }
        return Predictions(values)
