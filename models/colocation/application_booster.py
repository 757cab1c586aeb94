"""Relative speed of applications, from the fractions of time that others ran next to them.

An application of the training set has the median of its log relative speeds and a booster of the
deviations that neighbours cause; other applications share a median and a booster fitted to all
rows. The booster's output is multiplied by a shrinkage factor chosen on held-out experiments (or
applications), so that the median is predicted where neighbours explain nothing. An application's
name selects its rows and is never a feature.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix, Names, finite_log, rows_by
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Benchmark
from forerun.models.adaptation.shrunk_scalar import shrunk_medians
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.colocation.booster import FACTORS, fit_shrinkage
from forerun.models.conformal import LogQuantiles, out_of_fold
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.limit import Limit
from forerun.models.prediction import Predictions
from forerun.models.predictor import SETTING

SUITE: Final = "cloudprophet_runs"
METRIC: Final = "p_wall"
KEY: Final = "application"
"""Name of the setting that identifies an application."""
EXPERIMENT: Final = "experiment"
"""Grouping key held out to calibrate applications of the training set."""
FEATURES: Final = (
    *("co_web_serving", "co_media_streaming", "co_inmem_analytics", "co_data_serving", "co_redis"),
    *("co_ws_users", "co_ds_ops", "co_busy_vms", "log_load"),
)
"""Settings used as features; all are known once a placement is planned. The last one, the load, is
dropped for unmeasured applications: users of one application are not comparable to operations of
another, and the size of the load would reveal the application's name."""
NEW: Final = ""
"""Key that stands for all unmeasured applications."""
UNMEASURED: Final = "this application was not measured: the answer is estimated from all others"
FEWEST: Final = 30
"""Rows below which an application has no median and booster of its own."""
FOLDS: Final = 8
TREES: Final = 150
PARAMETERS: Final[Mapping[str, Any]] = {
    "objective": "l1",
    "learning_rate": 0.05,
    "num_leaves": 7,
    "min_data_in_leaf": 10,
    "feature_fraction": 0.8,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
}


@dataclass(frozen=True)
class NeighbourBoost(StoredPredictor):
    """Medians of applications, and boosters on the fractions of time that neighbours ran.

    Attributes:
        seed: of boosters and folds.
        levels: application -> median of its log relative speeds; NEW -> median of these medians.
        boosters: application -> booster of the deviations from its median; NEW -> of all rows.
        shares: application -> shrinkage factor of its booster; 1 where absent.
        offsets: application -> correction of the log relative speed after `adapt`.
        widths: application -> quantiles of log residuals on held-out experiments; NEW -> the
            outermost quantiles over held-out applications, which are too few to pool.
    """

    name: ClassVar[str] = "neighbour_boost"
    metrics: ClassVar[tuple[str, ...]] = (METRIC,)
    seed: int = field(default=0, metadata=SETTING)
    levels: Mapping[str, float] = field(default_factory=dict)
    boosters: Mapping[str, BoosterBag] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    offsets: Mapping[str, float] = field(default_factory=dict)
    widths: LogQuantiles = field(default_factory=LogQuantiles)

    def answers(self, query: Query) -> bool:
        """Whether the query is a run of this suite; false before `fit`."""
        workload = query.workload
        return isinstance(workload, Benchmark) and workload.suite == SUITE and bool(self.levels)

    def fit(self, measurements: Measurements) -> Self:
        """Fit medians and boosters, and calibrate on held-out experiments and applications.

        Args:
            measurements: runs with `p_wall` and the grouping key EXPERIMENT.
        """
        fitted = self._fitted(measurements)
        apps, target = _applications(measurements.queries), finite_log(measurements.column(METRIC))
        experiments = measurements.group(EXPERIMENT)

        def predict(held: Mask) -> tuple[Column, Column]:
            without = self._fitted(measurements.take(~held))
            return without._parts(measurements.take(held).queries)

        shares: dict[str, float] = {}
        quantiles = []
        for groups, names in ((experiments, apps), (apps, np.full(len(apps), NEW))):
            level, change = out_of_fold(groups, predict, folds=FOLDS, seed=self.seed, columns=2)
            shares |= fit_shrinkage(names, target, level, change, FACTORS, fewest=1)
            share = np.array([shares.get(str(name), 1.0) for name in names])
            quantiles.append(LogQuantiles.of(target - level - share * change, apps))
        widths, of_new = quantiles
        if NEW in shares:
            low, high = zip(*of_new.bounds.values(), strict=True)
            widths = LogQuantiles({**widths.bounds, NEW: (min(low), max(high))})
        return replace(fitted, shares=shares, widths=widths)

    def _fitted(self, rows: Measurements) -> Self:
        apps, target, matrix = (
            _applications(rows.queries),
            finite_log(rows.column(METRIC)),
            _matrix(rows.queries),
        )
        known = np.isfinite(target)
        levels, boosters = {}, {}
        residual = np.full(len(apps), np.nan)
        for app in np.unique(apps[known]):
            members = known & (apps == app)
            level = float(np.median(target[members]))
            residual[members] = target[members] - level
            if members.sum() >= FEWEST:
                levels[str(app)] = level
                boosters[str(app)] = self._booster(matrix[members], residual[members])
        if known.any():
            levels[NEW] = float(np.median(list(levels.values()) or target[known]))
            boosters[NEW] = self._booster(matrix[known, :-1], residual[known])
        return replace(self, levels=levels, boosters=boosters, shares={}, offsets={})

    def _booster(self, matrix: Matrix, target: Column) -> BoosterBag:
        return BoosterBag.fit(matrix, target, parameters=PARAMETERS, trees=TREES, seeds=[self.seed])

    def _parts(self, queries: Sequence[Query]) -> tuple[Column, Column]:
        """Median of each query's application, and the predicted effect of neighbours, both (n,)."""
        apps, matrix = _applications(queries), _matrix(queries)
        keys = [str(app) if app in self.levels else NEW for app in apps]
        change = np.zeros(len(keys))
        for key, rows in rows_by(keys).items():
            inputs = matrix[rows]
            change[rows] = self.boosters[key].predict(inputs if key else inputs[:, :-1])
        return np.array([self.levels[key] for key in keys]), change

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Relative speeds with intervals."""
        apps = _applications(queries)
        keys = [str(app) if app in self.levels else NEW for app in apps]
        level, change = self._parts(queries)
        shares = np.array([self.shares.get(key, 1.0) for key in keys])
        offsets = np.array([self.offsets.get(str(app), 0.0) for app in apps])
        values = np.exp(level + shares * change + offsets)
        low, high = self.widths.around(values, keys)
        limits = [(Limit(UNMEASURED),) if key == NEW else () for key in keys]
        return Predictions({METRIC: values}, {METRIC: low}, {METRIC: high}, 0.9, limits)

    def adapt(self, measurements: Measurements) -> Self:
        """Correct each application by its median log residual, shrunk towards zero."""
        plain = replace(self, offsets={})
        apps = _applications(measurements.queries)
        answers = plain.predict(measurements.queries).values[METRIC]
        residuals = finite_log(measurements.column(METRIC)) - np.log(answers)
        return replace(self, offsets={**self.offsets, **shrunk_medians(residuals, apps)})


def _applications(queries: Sequence[Query]) -> Names:
    settings = (query.benchmark.by_name for query in queries)
    return np.array([str(values[KEY]) for values in settings], dtype=np.str_)


def _matrix(queries: Sequence[Query]) -> Matrix:
    """Features of n queries, shape (n, len(FEATURES)); NaN where a setting is absent."""
    settings = [query.benchmark.by_name for query in queries]
    rows = [[float(values.get(name, np.nan)) for name in FEATURES] for values in settings]
    return np.array(rows, dtype=np.float64).reshape(-1, len(FEATURES))
