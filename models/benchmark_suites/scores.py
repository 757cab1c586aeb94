"""Results of tests: a power law of the settings, and boosters trained on its residuals.

Each suite and metric has a power law and a booster of its own, so nothing is transferred between
suites. Trees alone are constant outside the range of the training set; a power law extrapolates.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np

from forerun.data.arrays import Column, Mask, Names
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Benchmark
from forerun.models.adaptation.shrunk_median import shrunk_medians
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.benchmark_suites.features import PowerLaw, Settings, benchmark_of
from forerun.models.conformal import LogQuantiles, out_of_fold
from forerun.models.estimator import SETTING
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.limit import Limit
from forerun.models.prediction import Predictions

METRICS = ("latency_cycles", "lut", "ff", "dsp", "bram", "score")
FLOORS: Mapping[str, float] = dict.fromkeys(METRICS[:-1], 1.0)
"""Metric -> constant added before the logarithm, because a count of zero is a valid measurement."""

LEAST = 1e-4
"""Smallest value that is predicted."""
FOLDS = 4

GROUP = "held_out"
"""Grouping key of rows that are held out together to calibrate intervals."""

PARAMETERS: Mapping[str, object] = {
    "objective": "regression",
    "learning_rate": 0.05,
    "num_leaves": 15,
    "min_data_in_leaf": 3,
    "feature_fraction": 0.8,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
}
Key = tuple[str, str]
"""Suite, metric."""


@dataclass(frozen=True)
class BenchmarkBoost(StoredPredictor):
    """Several metrics of tests with numeric and categorical settings.

    Attributes:
        seed: of boosters and folds.
        trees: boosting rounds.
        settings: suite -> its settings in the training set.
        laws: (suite, metric) -> power law.
        boosters: (suite, metric) -> boosters of the law's log residuals.
        levels: (suite, metric) -> correction of the logarithm after `adapt`.
        widths: metric -> quantiles of log residuals on held-out groups, by suite.
    """

    name: ClassVar[str] = "benchmark_boost"
    seed: int = field(default=0, metadata=SETTING)
    trees: int = field(default=300, metadata=SETTING)
    settings: Mapping[str, Settings] = field(default_factory=dict)
    laws: Mapping[Key, PowerLaw] = field(default_factory=dict)
    boosters: Mapping[Key, BoosterBag] = field(default_factory=dict)
    levels: Mapping[Key, float] = field(default_factory=dict)
    widths: Mapping[str, LogQuantiles] = field(default_factory=dict)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics in the training set; all of METRICS before `fit`."""
        fitted = {metric for _, metric in self.laws}
        return tuple(metric for metric in METRICS if metric in fitted or not fitted)

    def answers(self, query: Query) -> bool:
        """Whether the query is about a test of a suite in the training set."""
        return isinstance(query.workload, Benchmark) and query.workload.suite in self.settings

    def fit(self, measurements: Measurements) -> Self:
        """Fit on every suite, and calibrate intervals on held-out groups.

        Args:
            measurements: tests with any of METRICS; without the grouping key GROUP, single rows
                are held out.
        """
        fitted = self._fitted(measurements)
        suites = _suites(measurements.queries)
        groups = measurements.groups.get(GROUP, np.arange(len(suites)).astype(np.str_))

        def predict(held: Mask) -> list[Column]:
            without, queries = (
                self._fitted(measurements.take(~held)),
                measurements.take(held).queries,
            )
            return [without._predict_log(metric, queries) for metric in metrics]

        metrics = fitted.metrics
        columns = out_of_fold(groups, predict, folds=FOLDS, seed=self.seed, columns=len(metrics))
        widths = {
            metric: LogQuantiles.of(_logarithms(metric, measurements) - predicted, suites)
            for metric, predicted in zip(metrics, columns, strict=True)
        }
        return replace(fitted, widths=widths)

    def _fitted(self, rows: Measurements) -> Self:
        settings, laws, boosters = {}, {}, {}
        suites = _suites(rows.queries)
        for suite in np.unique(suites):
            tests = rows.take(suites == suite)
            of_suite = Settings.of(tests.queries)
            settings[str(suite)] = of_suite
            matrix, logs = of_suite.matrix(tests.queries), of_suite.logarithms(tests.queries)
            for metric in METRICS:
                target = _logarithms(metric, tests)
                known = np.isfinite(target)
                if not known.any():
                    continue
                key = (str(suite), metric)
                law = PowerLaw.fit(logs[known], target[known])
                laws[key] = law
                boosters[key] = BoosterBag.fit(
                    matrix[known],
                    target[known] - law.predict(logs[known]),
                    parameters=PARAMETERS,
                    trees=self.trees,
                    seeds=(self.seed,),
                )
        return replace(self, settings=settings, laws=laws, boosters=boosters, levels={})

    def adapt(self, measurements: Measurements) -> Self:
        """Correct each suite and metric by its median log residual, shrunk towards zero."""
        levels = dict(self.levels)
        plain = replace(self, levels={})
        suites = _suites(measurements.queries)
        for metric in self.metrics:
            residuals = _logarithms(metric, measurements)
            residuals = residuals - plain._predict_log(metric, measurements.queries)
            shrunk = shrunk_medians(residuals, suites)
            levels |= {(suite, metric): level for suite, level in shrunk.items()}
        return replace(self, levels=levels)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Predictions with intervals; NaN for a suite outside the training set."""
        suites = [benchmark_of(query).suite for query in queries]
        values, low, high = {}, {}, {}
        for metric in self.metrics:
            floor = FLOORS.get(metric, 0.0)
            raised = np.exp(self._predict_log(metric, queries))
            values[metric] = np.maximum(raised - floor, LEAST)
            if metric in self.widths:
                below, above = self.widths[metric].around(raised, suites)
                low[metric] = np.minimum(np.maximum(below - floor, 0.0), values[metric])
                high[metric] = np.maximum(above - floor, values[metric])
        coverage = next((w.coverage for w in self.widths.values()), None)
        return Predictions(values, low, high, coverage, [self._limits(q) for q in queries])

    def _predict_log(self, metric: str, queries: Sequence[Query]) -> Column:
        """Predicted logarithms of value plus floor, shape (n,); NaN for an unknown suite."""
        predicted = np.full(len(queries), np.nan)
        suites = _suites(queries)
        for key, law in self._laws_of(metric):
            rows = np.flatnonzero(suites == key[0]).tolist()
            if rows:
                tests, settings = [queries[row] for row in rows], self.settings[key[0]]
                boosted = self.boosters[key].predict(settings.matrix(tests))
                level = self.levels.get(key, 0.0)
                predicted[rows] = law.predict(settings.logarithms(tests)) + boosted + level
        return predicted

    def _laws_of(self, metric: str) -> Iterator[tuple[Key, PowerLaw]]:
        return ((key, law) for key, law in self.laws.items() if key[1] == metric)

    def _limits(self, query: Query) -> tuple[Limit, ...]:
        suite = benchmark_of(query).suite
        if suite not in self.settings:
            return (Limit(f"no test of {suite} was measured"),)
        return self.settings[suite].limits(query)


def _suites(queries: Sequence[Query]) -> Names:
    return np.array([benchmark_of(query).suite for query in queries], dtype=np.str_)


def _logarithms(metric: str, rows: Measurements) -> Column:
    """Logarithms of measured value plus floor, shape (n,); NaN where nothing was measured."""
    measured = rows.values.get(metric, np.full(len(rows), np.nan))
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(measured + FLOORS.get(metric, 0.0))
    return np.where(np.isfinite(logs), logs, np.nan)
