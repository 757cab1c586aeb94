"""Predicts test results from a power law of the settings and boosters trained on its residuals.

Each suite and metric has its own power law and booster, so nothing is transferred between suites.
Trees alone are constant outside the range of the training set; a power law extrapolates. With few
rows, a Gaussian process may contribute a share of the answer, chosen on held-out groups.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import ClassVar, Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix, finite_log, rows_by
from forerun.data.measurements import Measurements
from forerun.data.metrics import METRICS as RUN_METRICS
from forerun.data.metrics import SERVING_METRICS
from forerun.data.query import Query
from forerun.data.workload import Benchmark
from forerun.models.adaptation.shrunk_scalar import shrunk_medians
from forerun.models.artifact.codec import NOT_STORED
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import LogQuantiles, out_of_fold
from forerun.models.domain.feature_range import FeatureRange
from forerun.models.gaussian_process.regression import (
    Covariance,
    GaussianProcessRegression,
    covariances_over,
)
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.known_suites import KnownSetting, KnownSuite
from forerun.models.limit import Limit
from forerun.models.prediction import Predictions
from forerun.models.predictor import SETTING

Tests = Sequence[Mapping[str, float | str]]
"""The settings of each test; a text is one of several choices."""
RIDGE = 1.0
"""Ridge penalty on the exponents of standardised settings, in rows."""
MOST_PAIRED = 8
"""Maximum number of settings for which boosters get products and ratios of pairs."""


@dataclass(frozen=True)
class Settings:
    """The settings of one suite in the training set.

    Attributes:
        ranges: minimum and maximum of each numeric setting.
        choices: categorical setting -> its values, sorted.
    """

    ranges: FeatureRange
    choices: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, tests: Tests) -> Self:
        """Settings of n training tests; one that is a text in any test is categorical."""
        values_of: dict[str, set[float | str]] = {}
        for test in tests:
            for name, value in test.items():
                values_of.setdefault(name, set()).add(value)
        texts = {n for n, values in values_of.items() if any(isinstance(v, str) for v in values)}
        numbers = tuple(sorted(set(values_of) - texts))
        choices = {name: tuple(sorted(str(v) for v in values_of[name])) for name in sorted(texts)}
        return cls(FeatureRange.of(numbers, _numbers(numbers, tests)), choices)

    def known(self) -> tuple[KnownSetting, ...]:
        """All settings with their ranges and values; those that vary are required."""
        ranges = zip(self.ranges.names, self.ranges.low, self.ranges.high, strict=True)
        return (
            *(KnownSetting(n, v, required=len(v) > 1) for n, v in self.choices.items()),
            *(
                KnownSetting(n, (), float(low), float(high), required=low < high)
                for n, low, high in ranges
            ),
        )

    def constants(self) -> dict[str, float | str]:
        """Settings that are the same in all training rows."""
        return {
            setting.name: setting.values[0] if setting.values else setting.low or 0.0
            for setting in self.known()
            if not setting.required
        }

    def matrix(self, tests: Tests) -> Matrix:
        """Feature matrix of the boosters, shape (n, features).

        Its columns are the numeric settings, their logarithms, sums and differences of pairs of
        logarithms if there are few, and a column for each value of a categorical setting. These are
        all 0 for values outside the training set. A missing number is NaN.
        """
        logs = self.logarithms(tests)
        pairs = list(combinations(logs.T, 2)) if logs.shape[1] <= MOST_PAIRED else []
        products = [a + b for a, b in pairs]
        ratios = [a - b for a, b in pairs]
        numbers = _numbers(self.ranges.names, tests)
        return np.column_stack([numbers, logs, *products, *ratios, *self._flags(tests)])

    def logarithms(self, tests: Tests) -> Matrix:
        """Logarithms of the settings that are positive in the training set, (n, settings)."""
        return finite_log(_numbers(self.ranges.names, tests)[:, self.ranges.low > 0.0])

    def limits(self, given: Mapping[str, float | str]) -> tuple[Limit, ...]:
        """One limit per setting that is missing, unknown, or outside the training set."""
        names = (*self.ranges.names, *self.choices)
        missing = [f"{name} is not given" for name in names if name not in given]
        unknown = [f"{name} is not known" for name in given if name not in names]
        new = [
            f"{name} is {given[name]!r}, which training did not see"
            for name, values in self.choices.items()
            if name in given and str(given[name]) not in values
        ]
        row = _numbers(self.ranges.names, [given])[0]
        return (*map(Limit, (*missing, *unknown, *new)), *self.ranges.outside(row, tolerance=0.0))

    def encoded(self, tests: Tests) -> Matrix:
        """Columns of the Gaussian process, (n, columns): logarithms, other numbers, and one column
        per value of a categorical setting; NaN for missing numbers.
        """
        numbers = _numbers(self.ranges.names, tests)[:, self.ranges.low <= 0.0]
        return np.column_stack([self.logarithms(tests), numbers, *self._flags(tests)])

    def _flags(self, tests: Tests) -> list[Column]:
        """An indicator column for each value of each categorical setting, (n,) each."""
        return [
            np.array([str(test.get(name)) == value for test in tests], dtype=np.float64)
            for name, values in self.choices.items()
            for value in values
        ]


@dataclass(frozen=True)
class PowerLaw:
    """A product of powers of the settings, which extrapolates where trees are constant.

    Attributes:
        level: mean of the target's logarithms in the training set.
        middle: mean logarithm of each setting there.
        exponents: one per setting.
    """

    level: float
    middle: tuple[float, ...]
    exponents: tuple[float, ...]

    @classmethod
    def fit(cls, logs: Matrix, target: Column) -> Self:
        """Ridge regression of the target's logarithms on those of the settings.

        Args:
            logs: logarithms of the settings, shape (n, settings); NaN where missing.
            target: logarithms of the metric, shape (n,).
        """
        middle = np.nanmean(logs, axis=0)
        centred = np.nan_to_num(logs - middle)
        scale = centred.std(axis=0)
        # A setting that is constant in the training set gets an exponent of 0.
        varies = scale > 1e-9
        exponents = np.zeros(len(middle))
        rows = centred[:, varies] / scale[varies]
        level = float(target.mean())
        inner = rows.T @ rows + RIDGE * np.eye(rows.shape[1])
        exponents[varies] = np.linalg.solve(inner, rows.T @ (target - level)) / scale[varies]
        return cls(level, tuple(middle.tolist()), tuple(exponents.tolist()))

    def predict(self, logs: Matrix) -> Column:
        """Predicted logarithms, shape (n,); a missing setting counts as `middle`."""
        # Summed row by row, because matrix products may round differently for other batch sizes.
        terms = np.nan_to_num(logs - np.array(self.middle)) * np.array(self.exponents)
        return np.asarray(self.level + terms.sum(axis=1))


MOST_ROWS = 500
"""Maximum number of rows for a Gaussian process, whose cost is cubic in them."""
MOST_COLUMNS = 12
"""Maximum number of columns for which each gets its own covariances."""
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Candidate weights of the Gaussian process, compared on held-out groups."""


@dataclass(frozen=True)
class SmoothLaw:
    """A Gaussian process over the settings of a suite with few rows: smooth between rows, and far
    from them equal to its linear term.

    Attributes:
        columns: columns of `Settings.encoded` that vary in the training set.
        middle, spread: mean and standard deviation of each of these.
        process: Gaussian process of their standardised values.
    """

    columns: tuple[int, ...]
    middle: tuple[float, ...]
    spread: tuple[float, ...]
    process: GaussianProcessRegression

    @classmethod
    def fit(cls, encoded: Matrix, target: Column) -> Self | None:
        """Maximum a posteriori estimates; None with too many rows or if no column varies.

        Args:
            encoded: columns of `Settings.encoded`, (n, columns).
            target: logarithms of the metric, (n,).
        """
        middle, spread = np.nanmean(encoded, axis=0), np.nanstd(encoded, axis=0)
        columns = np.flatnonzero(spread > 1e-9)
        if len(target) > MOST_ROWS or not len(columns):
            return None
        every = (0, len(columns))
        terms = list(covariances_over(every, (0.4, 0.8, 1.6)))
        if len(columns) <= MOST_COLUMNS:
            spans = [(at, at + 1) for at in range(len(columns))]
            terms += [Covariance("radial", span, length) for span in spans for length in (0.5, 1.5)]
        plain = cls(
            tuple(columns.tolist()),
            tuple(middle[columns].tolist()),
            tuple(spread[columns].tolist()),
            GaussianProcessRegression(tuple(terms), NOISE),
        )
        return replace(plain, process=plain.process.fit(plain._scaled(encoded), target))

    def predict(self, encoded: Matrix) -> Column:
        """Predicted logarithms, shape (n,); a missing number counts as `middle`."""
        rows = [self.process.predict(row[None]).mean[0] for row in self._scaled(encoded)]
        return np.array(rows, dtype=np.float64)

    def normal(self, encoded: Matrix) -> tuple[Column, Column]:
        """Means and standard deviations of new measurements, (n,) each."""
        found = self.process.predict(self._scaled(encoded))
        return found.mean, np.sqrt(found.variance)

    def _scaled(self, encoded: Matrix) -> Matrix:
        scaled = (encoded[:, list(self.columns)] - np.array(self.middle)) / np.array(self.spread)
        return np.asarray(np.nan_to_num(scaled))


NOISE = (-5.0, 2.0)
"""Prior of the log noise variance; its mean is a standard deviation of 8 %."""


def _numbers(names: Sequence[str], tests: Tests) -> Matrix:
    """Numeric settings, shape (n, len(names)); NaN where missing or a text."""
    rows = np.full((len(tests), len(names)), np.nan)
    for row, test in enumerate(tests):
        for column, name in enumerate(names):
            value = test.get(name)
            if isinstance(value, float | int):
                rows[row, column] = value
    return rows


COUNTS = ("latency_cycles", "lut", "ff", "dsp", "bram")
METRICS = (
    *(*COUNTS, "score"),
    *(metric.name for metric in (*RUN_METRICS, *SERVING_METRICS)),
)
"""Metrics that a suite may have."""
FLOORS: Mapping[str, float] = dict.fromkeys(COUNTS, 1.0)
"""Metric -> constant added before the logarithm, because zero is a valid count."""

LEAST: Mapping[str, float] = dict.fromkeys((*COUNTS, "score"), 1e-4)
"""Metric -> smallest predicted value; 0 for others, whose logarithm is predicted."""
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
        with_process: whether suites of up to `MOST_ROWS` rows also get a Gaussian process, and
            intervals count held-out groups instead of their rows.
        folds: number of folds of held-out groups for calibration; 0 for no intervals.
        settings: suite -> its settings in the training set.
        laws: (suite, metric) -> power law.
        boosters: (suite, metric) -> boosters of the power law's log residuals.
        smooth: (suite, metric) -> Gaussian process; empty unless `with_process`.
        shares: (suite, metric) -> weight of the process relative to power law and boosters.
        levels: (suite, metric) -> correction of the logarithm after `adapt`.
        widths: metric -> quantiles of log residuals on held-out groups, by suite.
    """

    name: ClassVar[str] = "benchmark_boost"
    seed: int = field(default=0, metadata=SETTING)
    trees: int = field(default=300, metadata=SETTING)
    with_process: bool = field(default=False, metadata=SETTING)
    folds: int = field(default=FOLDS, metadata={**SETTING, **NOT_STORED})
    settings: Mapping[str, Settings] = field(default_factory=dict)
    laws: Mapping[Key, PowerLaw] = field(default_factory=dict)
    boosters: Mapping[Key, BoosterBag] = field(default_factory=dict)
    smooth: Mapping[Key, SmoothLaw] = field(default_factory=dict)
    shares: Mapping[Key, float] = field(default_factory=dict)
    levels: Mapping[Key, float] = field(default_factory=dict)
    widths: Mapping[str, LogQuantiles] = field(default_factory=dict)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics in the training set; all of METRICS before `fit`."""
        fitted = {metric for _, metric in self.laws}
        return tuple(metric for metric in METRICS if metric in fitted or not fitted)

    def answers(self, query: Query) -> bool:
        """Whether the query is a test of a suite in the training set."""
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
        if not self.folds:
            return replace(fitted, widths={})
        suites = np.array(_suites(measurements.queries), dtype=np.str_)
        groups = measurements.group(GROUP)

        def predict(held: Mask) -> list[Column]:
            without = self._fitted(measurements.take(~held))
            queries = measurements.take(held).queries
            return [
                replace(without, shares=dict.fromkeys(without.laws, share))._predict_log(m, queries)
                for m in metrics
                for share in (0.0, 1.0)
            ]

        metrics = fitted.metrics
        columns = out_of_fold(
            groups, predict, folds=self.folds, seed=self.seed, columns=2 * len(metrics)
        )
        shares, widths = {}, {}
        flat: dict[str, Column] = {}
        for metric, boosted, smooth in zip(metrics, columns[::2], columns[1::2], strict=True):
            targets = _logarithms(metric, measurements)
            residuals = targets - boosted
            for suite, rows in rows_by(suites.tolist()).items():
                if (suite, metric) in fitted.smooth:
                    row_residuals, apart = residuals[rows], (smooth - boosted)[rows]
                    errors = [np.nanmean(np.abs(row_residuals - share * apart)) for share in SHARES]
                    shares[suite, metric] = SHARES[int(np.argmin(errors))]
                    residuals[rows] = row_residuals - shares[suite, metric] * apart
                    level = np.nanmedian(targets[rows])
                    row_residuals = targets[rows] - level
                    if np.nanmean(np.abs(residuals[rows]) - np.abs(row_residuals)) > 0.0:
                        # The median of the table predicts the held-out rows better.
                        shares[suite, metric], residuals[rows] = 0.0, row_residuals
                        flat[metric] = flat.get(metric, measurements.values[metric]).copy()
                        flat[metric][rows] = np.exp(level) - FLOORS.get(metric, 0.0)
            of_groups = groups if self.with_process else None
            widths[metric] = LogQuantiles.of(residuals, suites, groups=of_groups)
        if flat:
            fitted = self._fitted(replace(measurements, values={**measurements.values, **flat}))
        kept = {key: law for key, law in fitted.smooth.items() if shares[key]}
        return replace(fitted, smooth=kept, shares=shares, widths=widths)

    def _fitted(self, rows: Measurements) -> Self:
        settings, laws, boosters = {}, {}, {}
        smooth: dict[Key, SmoothLaw] = {}
        for suite, members in rows_by(_suites(rows.queries)).items():
            tests = rows.take(members)
            given = [query.benchmark.by_name for query in tests.queries]
            of_suite = Settings.of(given)
            settings[suite] = of_suite
            matrix, logs = of_suite.matrix(given), of_suite.logarithms(given)
            for metric in METRICS:
                target = _logarithms(metric, tests)
                known = np.isfinite(target)
                if known.sum() < 2:
                    continue
                if self.with_process:
                    encoded = of_suite.encoded(given)
                    process = SmoothLaw.fit(encoded[known], target[known])
                    smooth |= {} if process is None else {(suite, metric): process}
                law = PowerLaw.fit(logs[known], target[known])
                laws[suite, metric] = law
                boosters[suite, metric] = BoosterBag.fit(
                    matrix[known],
                    target[known] - law.predict(logs[known]),
                    parameters=PARAMETERS,
                    trees=self.trees,
                    seeds=(self.seed,),
                    weights=None if tests.weights is None else tests.weights[known],
                )
        shares = {key: self.shares.get(key, 0.5) for key in smooth}
        return replace(
            self,
            settings=settings,
            laws=laws,
            boosters=boosters,
            smooth=smooth,
            shares=shares,
            levels={},
        )

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
            values[metric] = np.maximum(raised - floor, LEAST.get(metric, 0.0))
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
                tests = [queries[row].benchmark.by_name for row in rows]
                settings = self.settings[suite]
                by_law = self.laws[key].predict(settings.logarithms(tests))
                found = by_law + self.boosters[key].predict(settings.matrix(tests))
                if key in self.smooth and self.shares.get(key):
                    smooth, share = self.smooth[key], self.shares[key]
                    found += share * (smooth.predict(settings.encoded(tests)) - found)
                predicted[rows] = found + self.levels.get(key, 0.0)
        return predicted

    def _limits(self, query: Query) -> tuple[Limit, ...]:
        suite = query.benchmark.suite
        if suite not in self.settings:
            return (Limit(f"no test of {suite} was measured"),)
        return self.settings[suite].limits(query.benchmark.by_name)


def _suites(queries: Sequence[Query]) -> list[str]:
    return [query.benchmark.suite for query in queries]


def _logarithms(metric: str, rows: Measurements) -> Column:
    """Logarithms of measured value plus floor, shape (n,); NaN where not measured."""
    return finite_log(rows.column(metric) + FLOORS.get(metric, 0.0))
