"""Relative speed of applications, from the fractions of time that others ran next to them.

An application of the training set has the median of its log relative speeds, and a booster of the
deviations from it that neighbours cause; any other application takes a median and a booster fitted
on all rows. The booster's prediction is multiplied by a shrinkage factor that is chosen on held-out
experiments (or applications), so that the median is predicted where neighbours explain nothing. The
name of an application is a key to its own rows, never a feature.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Benchmark
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.benchmark_suites.features import benchmark_of
from forerun.models.conformal.intervals import LogQuantiles, held_out_folds
from forerun.models.estimator import SETTING
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.limit import Limit
from forerun.models.prediction import Predictions

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
SUITE: Final = "cloudprophet_runs"
METRIC: Final = "p_wall"
KEY: Final = "application"
"""Name of the setting that holds an application's key."""
EXPERIMENT: Final = "experiment"
"""Grouping key that is held out to calibrate applications of the training set."""
FEATURES: Final = (
    *("co_web_serving", "co_media_streaming", "co_inmem_analytics", "co_data_serving", "co_redis"),
    *("co_ws_users", "co_ds_ops", "co_busy_vms", "log_load"),
)
"""Settings that are features; all are known once a placement is planned. The last one, the load, is
no feature for applications that were not measured: users of one application are not comparable to
operations of another, and the size of the load would reveal the application's name."""
NEW: Final = ""
"""Key that stands for all applications that were not measured."""
UNMEASURED: Final = "this application was not measured: the answer is from all others"
FEWEST: Final = 30
"""An application with fewer rows has no median and no booster of its own."""
FACTORS: Final = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Candidate shrinkage factors."""
FOLDS: Final = 8
PRIOR_ROWS: Final = 3.0
"""Pseudo-observations without an error that shrink a correction in `adapt` towards zero."""
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
            outermost quantiles over held-out applications, which are too few to be pooled.
    """

    name: ClassVar[str] = "neighbour_boost"
    seed: int = field(default=0, metadata=SETTING)
    levels: Mapping[str, float] = field(default_factory=dict)
    boosters: Mapping[str, BoosterBag] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    offsets: Mapping[str, float] = field(default_factory=dict)
    widths: LogQuantiles = field(default_factory=lambda: LogQuantiles({"all": (-1.0, 1.0)}))

    @property
    def metrics(self) -> tuple[str, ...]:
        """Relative speed in wall time."""
        return (METRIC,)

    def answers(self, query: Query) -> bool:
        """Whether the query is about a run of this suite; none is answered before `fit`."""
        workload = query.workload
        return isinstance(workload, Benchmark) and workload.suite == SUITE and bool(self.levels)

    def fit(self, measurements: Measurements) -> Self:
        """Fit medians and boosters, and calibrate on held-out experiments and applications.

        Args:
            measurements: runs with `p_wall`, and the grouping key EXPERIMENT.
        """
        fitted = self._fitted(measurements)
        apps, target = _applications(measurements.queries), _log_speeds(measurements)
        experiments = measurements.groups.get(EXPERIMENT, np.arange(len(apps)).astype(np.str_))
        shares: dict[str, float] = {}
        residuals, strata = [], []
        bounds: list[tuple[float, float]] = []
        for groups, new in ((experiments, False), (apps, True)):
            level, change = self._held_out(measurements, groups)
            names = np.full(len(apps), NEW) if new else apps
            for name in np.unique(names):
                own = (names == name) & np.isfinite(level + change + target)
                if not own.any():
                    continue
                share = _best_factor(target[own], level[own], change[own])
                shares[str(name)] = share
                own_residuals = target[own] - level[own] - share * change[own]
                if new:
                    bounds = list(LogQuantiles.of(own_residuals, apps[own]).bounds.values())
                else:
                    residuals.append(own_residuals)
                    strata.append(names[own])
        if not residuals:
            return fitted
        widths = LogQuantiles.of(np.concatenate(residuals), np.concatenate(strata))
        if bounds:
            low, high = zip(*bounds, strict=True)
            widths = LogQuantiles({**widths.bounds, NEW: (min(low), max(high))})
        return replace(fitted, shares=shares, widths=widths)

    def _fitted(self, rows: Measurements) -> Self:
        apps, target, matrix = _applications(rows.queries), _log_speeds(rows), _matrix(rows.queries)
        known = np.isfinite(target)
        levels, boosters = {}, {}
        residual = np.full(len(apps), np.nan)
        for app in np.unique(apps[known]):
            own = known & (apps == app)
            level = float(np.median(target[own]))
            residual[own] = target[own] - level
            if own.sum() >= FEWEST:
                levels[str(app)] = level
                boosters[str(app)] = self._booster(matrix[own], residual[own])
        if known.any():
            levels[NEW] = float(np.median(list(levels.values()) or target[known]))
            boosters[NEW] = self._booster(matrix[known, :-1], residual[known])
        return replace(self, levels=levels, boosters=boosters, shares={}, offsets={})

    def _booster(self, matrix: Matrix, target: Column) -> BoosterBag:
        return BoosterBag.fit(matrix, target, parameters=PARAMETERS, trees=TREES, seeds=[self.seed])

    def _held_out(self, rows: Measurements, groups: NDArray[np.str_]) -> tuple[Column, Column]:
        """Median and change of each row by a fit without the row's group; NaN with one group."""
        level, change = (np.full(len(rows), np.nan) for _ in range(2))
        for held in held_out_folds(groups, FOLDS, self.seed):
            if not held.all():
                fitted = self._fitted(rows.take(~held))
                level[held], change[held] = fitted._parts(rows.take(held).queries)
        return level, change

    def _parts(self, queries: Sequence[Query]) -> tuple[Column, Column]:
        """Median of each query's application, and the predicted change by neighbours, both (n,)."""
        apps, matrix = _applications(queries), _matrix(queries)
        keys = np.array([a if a in self.levels else NEW for a in apps], dtype=np.str_)
        change = np.zeros(len(keys))
        for key in np.unique(keys):
            own = matrix[keys == key]
            change[keys == key] = self.boosters[str(key)].predict(own if key else own[:, :-1])
        return np.array([self.levels[str(key)] for key in keys]), change

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
        residuals = _log_speeds(measurements) - np.log(answers)
        offsets = dict(self.offsets)
        for app in np.unique(apps[np.isfinite(residuals)]):
            own = residuals[(apps == app) & np.isfinite(residuals)]
            shrunk = len(own) / (len(own) + PRIOR_ROWS)
            offsets[str(app)] = shrunk * float(np.median(own))
        return replace(self, offsets=offsets)


def _applications(queries: Sequence[Query]) -> NDArray[np.str_]:
    settings = (dict(benchmark_of(query).settings) for query in queries)
    return np.array([str(values[KEY]) for values in settings], dtype=np.str_)


def _matrix(queries: Sequence[Query]) -> Matrix:
    """Features of n queries, shape (n, len(FEATURES)); NaN where a setting is absent."""
    settings = [dict(benchmark_of(query).settings) for query in queries]
    rows = [[float(values.get(name, np.nan)) for name in FEATURES] for values in settings]
    return np.array(rows, dtype=np.float64).reshape(-1, len(FEATURES))


def _log_speeds(rows: Measurements) -> Column:
    logs: Column = np.log(rows.values[METRIC])
    return logs


def _best_factor(target: Column, level: Column, change: Column) -> float:
    """Factor on the change with the smallest mean absolute error of relative speed."""
    errors = [np.abs(np.exp(level + s * change) - np.exp(target)).mean() for s in FACTORS]
    return FACTORS[int(np.argmin(errors))]
