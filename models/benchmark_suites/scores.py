"""Results of tests: a power law of the settings, and boosters trained on its residuals.

Each suite and metric has a power law and a booster of its own, so nothing is transferred between
suites. Trees alone are constant outside the range of the training set; a power law extrapolates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np

from forerun.data.columns import Column, Mask, finite_log, rows_by
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Benchmark
from forerun.models.adaptation.shrunk_median import shrunk_medians
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.benchmark_suites.features import PowerLaw, Settings
from forerun.models.benchmark_suites.known_suites import KnownSuite
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

    def known_suites(self) -> tuple[KnownSuite, ...]:
        """The suites in the training set."""
        return tuple(
            KnownSuite(
                suite,
                settings.known(),
                tuple(metric for metric in METRICS if (suite, metric) in self.laws),
                ("cpu",) if (suite, "score") in self.laws else ("fpga",),
            )
            for suite, settings in self.settings.items()
        )

    def usual_settings(self, query: Query) -> Mapping[str, float | str]:
        """Settings that are the same in all training rows of the suite."""
        return self.settings[query.benchmark.suite].constants()

    def fit(self, measurements: Measurements) -> Self:
        """Fit on every suite, and calibrate intervals on held-out groups.

        Args:
            measurements: tests with any of METRICS; without the grouping key GROUP, single rows
                are held out.
        """
        fitted = self._fitted(measurements)
        suites = np.array(_suites(measurements.queries), dtype=np.str_)
        groups = measurements.group(GROUP)

        def predict(held: Mask) -> list[Column]:
            without = self._fitted(measurements.take(~held))
            queries = measurements.take(held).queries
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
        for suite, own in rows_by(_suites(rows.queries)).items():
            tests = rows.take(own)
            of_suite = Settings.of(tests.queries)
            settings[suite] = of_suite
            matrix, logs = of_suite.matrix(tests.queries), of_suite.logarithms(tests.queries)
            for metric in METRICS:
                target = _logarithms(metric, tests)
                known = np.isfinite(target)
                if not known.any():
                    continue
                law = PowerLaw.fit(logs[known], target[known])
                laws[suite, metric] = law
                boosters[suite, metric] = BoosterBag.fit(
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
        suites = np.array(_suites(measurements.queries), dtype=np.str_)
        for metric in self.metrics:
            residuals = _logarithms(metric, measurements)
            residuals = residuals - plain._predict_log(metric, measurements.queries)
            shrunk = shrunk_medians(residuals, suites)
            levels |= {(suite, metric): level for suite, level in shrunk.items()}
        return replace(self, levels=levels)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Predictions with intervals; NaN for a suite outside the training set."""
        suites = _suites(queries)
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
        for suite, rows in rows_by(_suites(queries)).items():
            key = (suite, metric)
            if key in self.laws:
                tests, settings = [queries[row] for row in rows], self.settings[suite]
                by_law = self.laws[key].predict(settings.logarithms(tests))
                boosted = self.boosters[key].predict(settings.matrix(tests))
                predicted[rows] = by_law + boosted + self.levels.get(key, 0.0)
        return predicted

    def _limits(self, query: Query) -> tuple[Limit, ...]:
        suite = query.benchmark.suite
        if suite not in self.settings:
            return (Limit(f"no test of {suite} was measured"),)
        return self.settings[suite].limits(query)


def _suites(queries: Sequence[Query]) -> list[str]:
    return [query.benchmark.suite for query in queries]


def _logarithms(metric: str, rows: Measurements) -> Column:
    """Logarithms of measured value plus floor, shape (n,); NaN where nothing was measured."""
    return finite_log(rows.column(metric) + FLOORS.get(metric, 0.0))
