"""Relative speed of applications from what ran next to them as fractions of time.

Each application that was measured has a level, the median of its logarithms, and a booster for what
its neighbours change; one that was not measured is answered by a level and a booster of all. How
much of a booster's answer counts is chosen on experiments (or applications) held out: where
neighbours explain nothing, the median stands. The name of an application is a key to its own rows,
never a feature.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Benchmark
from forerun.models.artifact.sealed_folder import read_content, write_content
from forerun.models.benchmark_suites.features import benchmark_of
from forerun.models.conformal.intervals import LogQuantiles, held_out_folds
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.prediction import Predictions

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
SUITE: Final = "cloudprophet_runs"
METRIC: Final = "p_wall"
KEY: Final = "application"
"""Setting whose text is the key of an application."""
EXPERIMENT: Final = "experiment"
"""Grouping key whose values are held out where shares and intervals of known ones are measured."""
FEATURES: Final = (
    *("co_web_serving", "co_media_streaming", "co_inmem_analytics", "co_data_serving", "co_redis"),
    *("co_ws_users", "co_ds_ops", "co_busy_vms", "log_load"),
)
"""Settings that are features; all are known once a placement is planned. The load, the last, is
none for applications that were not measured: users of one are not comparable to operations of
another, and its size would give the application's name away."""
NEW: Final = ""
"""In place of an application's name: all that were not measured."""
UNMEASURED: Final = "this application was not measured: the answer is from all others"
FEWEST: Final = 30
"""Rows of an application from which on it has a level and a booster of its own."""
SHARES: Final = (1.0, 0.75, 0.5, 0.25, 0.0)
FOLDS: Final = 8
PRIOR_ROWS: Final = 3.0
"""Imagined rows without an error that a correction is shrunk by."""
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
class NeighbourBoost:
    """Medians of applications, and boosters on fractions of time.

    Attributes:
        seed: of boosters and folds.
        levels: application -> median of log P; NEW -> median of those.
        boosters: application -> booster of log P less the level; NEW -> of all rows.
        shares: application -> share of its booster's answer that counts; 1 where absent.
        offsets: application -> correction after `adapt`.
        widths: quantiles of what was missed on experiments held out, an application each; under
            NEW the outermost of applications held out, for there are too few of them to pool.
    """

    name: ClassVar[str] = "neighbour_boost"
    seed: int = 0
    levels: Mapping[str, float] = field(default_factory=dict)
    boosters: Mapping[str, BoosterBag] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    offsets: Mapping[str, float] = field(default_factory=dict)
    widths: LogQuantiles = field(default_factory=lambda: LogQuantiles({"all": (-1.0, 1.0)}))

    @property
    def metrics(self) -> tuple[str, ...]:
        """Relative speed by the wall clock."""
        return (METRIC,)

    def answers(self, query: Query) -> bool:
        """Runs of this suite, once it was trained."""
        workload = query.workload
        return isinstance(workload, Benchmark) and workload.suite == SUITE and bool(self.levels)

    def fit(self, measurements: Measurements) -> Self:
        """Levels and boosters; shares and intervals from experiments and applications held out."""
        fitted = self._fitted(measurements)
        apps, target = _applications(measurements.queries), _log_speeds(measurements)
        experiments = measurements.groups.get(EXPERIMENT, np.arange(len(apps)).astype(np.str_))
        shares: dict[str, float] = {}
        missed, strata = [], []
        bounds: list[tuple[float, float]] = []
        for groups, new in ((experiments, False), (apps, True)):
            level, change = self._held_out(measurements, groups)
            names = np.full(len(apps), NEW) if new else apps
            for name in np.unique(names):
                mine = (names == name) & np.isfinite(level + change + target)
                if not mine.any():
                    continue
                share = _best_share(target[mine], level[mine], change[mine])
                shares[str(name)] = share
                errors = target[mine] - level[mine] - share * change[mine]
                if new:
                    bounds = list(LogQuantiles.of(errors, apps[mine]).bounds.values())
                else:
                    missed.append(errors)
                    strata.append(names[mine])
        if not missed:
            return fitted
        widths = LogQuantiles.of(np.concatenate(missed), np.concatenate(strata))
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
            mine = known & (apps == app)
            level = float(np.median(target[mine]))
            residual[mine] = target[mine] - level
            if mine.sum() >= FEWEST:
                levels[str(app)] = level
                boosters[str(app)] = self._booster(matrix[mine], residual[mine])
        if known.any():
            levels[NEW] = float(np.median(list(levels.values()) or target[known]))
            boosters[NEW] = self._booster(matrix[known, :-1], residual[known])
        return replace(self, levels=levels, boosters=boosters, shares={}, offsets={})

    def _booster(self, matrix: Matrix, target: Column) -> BoosterBag:
        return BoosterBag.fit(matrix, target, parameters=PARAMETERS, trees=TREES, seeds=[self.seed])

    def _held_out(self, rows: Measurements, groups: NDArray[np.str_]) -> tuple[Column, Column]:
        """Level and change of each row by a fit without the row's group; NaN with one group."""
        level, change = (np.full(len(rows), np.nan) for _ in range(2))
        for held in held_out_folds(groups, FOLDS, self.seed):
            if not held.all():
                fitted = self._fitted(rows.take(~held))
                level[held], change[held] = fitted._parts(rows.take(held).queries)
        return level, change

    def _parts(self, queries: Sequence[Query]) -> tuple[Column, Column]:
        """Level of each query's application, and what its neighbours change, shapes (n,)."""
        apps, matrix = _applications(queries), _matrix(queries)
        keys = np.array([a if a in self.levels else NEW for a in apps], dtype=np.str_)
        change = np.zeros(len(keys))
        for key in np.unique(keys):
            mine = matrix[keys == key]
            change[keys == key] = self.boosters[str(key)].predict(mine if key else mine[:, :-1])
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
        limits = [(UNMEASURED,) if key == NEW else () for key in keys]
        return Predictions({METRIC: values}, {METRIC: low}, {METRIC: high}, 0.9, limits)

    def adapt(self, measurements: Measurements) -> Self:
        """One correction an application, shrunk to none."""
        plain = replace(self, offsets={})
        apps = _applications(measurements.queries)
        answers = plain.predict(measurements.queries).values[METRIC]
        missed = _log_speeds(measurements) - np.log(answers)
        offsets = dict(self.offsets)
        for app in np.unique(apps[np.isfinite(missed)]):
            mine = missed[(apps == app) & np.isfinite(missed)]
            shrunk = len(mine) / (len(mine) + PRIOR_ROWS)
            offsets[str(app)] = shrunk * float(np.median(mine))
        return replace(self, offsets=offsets)

    def save(self, folder: Path) -> None:
        """Boosters as LightGBM text, the rest as JSON."""
        keys = sorted(self.boosters)
        content = {
            "seed": self.seed,
            "keys": keys,
            "levels": dict(self.levels),
            "shares": dict(self.shares),
            "offsets": dict(self.offsets),
            "widths": self.widths.to_json(),
        }
        write_content(folder, self.name, content)
        for place, key in enumerate(keys):
            self.boosters[key].save(folder, f"booster-{place}")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote.

        Raises:
            BadArtifact: the folder is damaged.
        """
        content = read_content(folder, cls.name)
        boosters = {
            key: BoosterBag.load(folder, f"booster-{place}", 1)
            for place, key in enumerate(content["keys"])
        }
        numbers = (content["levels"], boosters, content["shares"], content["offsets"])
        return cls(content["seed"], *numbers, LogQuantiles.from_json(content["widths"]))


def _applications(queries: Sequence[Query]) -> NDArray[np.str_]:
    settings = (dict(benchmark_of(query).settings) for query in queries)
    return np.array([str(one[KEY]) for one in settings], dtype=np.str_)


def _matrix(queries: Sequence[Query]) -> Matrix:
    """Features of n queries, n x len(FEATURES); NaN where a setting is absent."""
    settings = [dict(benchmark_of(query).settings) for query in queries]
    found = [[float(one.get(name, np.nan)) for name in FEATURES] for one in settings]
    return np.array(found, dtype=np.float64).reshape(-1, len(FEATURES))


def _log_speeds(rows: Measurements) -> Column:
    found: Column = np.log(rows.values[METRIC])
    return found


def _best_share(target: Column, level: Column, change: Column) -> float:
    """Share of the change with which answers miss relative speeds least."""
    errors = [np.abs(np.exp(level + s * change) - np.exp(target)).mean() for s in SHARES]
    return SHARES[int(np.argmin(errors))]
