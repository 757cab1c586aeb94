"""Tests of suites: a power law of the settings, and boosters for what it misses.

Each suite and metric has its own; nothing is learnt from one suite for another. Trees alone stand
still outside the values that they saw, a power law goes on.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Benchmark
from forerun.models.artifact.sealed_folder import read_content, write_content
from forerun.models.benchmark_suites.features import PowerLaw, Settings, benchmark_of
from forerun.models.conformal.intervals import LogQuantiles, held_out_folds, held_out_residuals
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.prediction import Predictions

Column = NDArray[np.float64]
METRICS = ("latency_cycles", "lut", "ff", "dsp", "bram", "score")
FLOORS: Mapping[str, float] = dict.fromkeys(METRICS[:-1], 1.0)
"""Added to counts before the logarithm, for zero is a measurement."""

LEAST = 1e-4
FOLDS = 4
PRIOR_ROWS = 3.0
"""Imagined rows without an error that a level adapted to is shrunk by."""

GROUP = "held_out"
"""Grouping key: what shall be held out together where intervals are measured."""

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
class BenchmarkBoost:
    """Several metrics of tests whose settings are numbers and choices.

    Attributes:
        seed: of boosters and folds.
        trees: boosting rounds.
        settings: suite -> what training saw of its settings.
        laws, boosters: what answers, by suite and metric.
        levels: correction in log space after `adapt`, by suite and metric.
        widths: metric -> quantiles of what is missed on groups held out, a suite each.
    """

    name: ClassVar[str] = "benchmark_boost"
    seed: int = 0
    trees: int = 300
    settings: Mapping[str, Settings] = field(default_factory=dict)
    laws: Mapping[Key, PowerLaw] = field(default_factory=dict)
    boosters: Mapping[Key, BoosterBag] = field(default_factory=dict)
    levels: Mapping[Key, float] = field(default_factory=dict)
    widths: Mapping[str, LogQuantiles] = field(default_factory=dict)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Those that training measured; all before it."""
        taught = {metric for _, metric in self.laws}
        return tuple(metric for metric in METRICS if metric in taught or not taught)

    def answers(self, query: Query) -> bool:
        """Tests of a suite that teaches."""
        return isinstance(query.workload, Benchmark) and query.workload.suite in self.settings

    def fit(self, measurements: Measurements) -> Self:
        """Fit on every suite; widths come from groups held out (rows, where there are none)."""
        fitted = self._fitted(measurements)
        suites = _suites(measurements.queries)
        groups = measurements.groups.get(GROUP, np.arange(len(suites)).astype(np.str_))
        logs = {m: _logarithms(m, measurements) for m in fitted.metrics}

        def answer(train: NDArray[np.bool_], held: NDArray[np.bool_]) -> Column:
            without = self._fitted(measurements.take(train))
            return without._in_logarithms(metric, measurements.take(held).queries)

        widths = {}
        for metric in fitted.metrics:
            masks = held_out_folds(groups, FOLDS, self.seed)
            residuals = held_out_residuals(logs[metric], masks, answer)
            widths[metric] = LogQuantiles.of(residuals, suites)
        return replace(fitted, widths=widths)

    def _fitted(self, rows: Measurements) -> Self:
        settings, laws, boosters = {}, {}, {}
        suites = _suites(rows.queries)
        for suite in np.unique(suites):
            mine = rows.take(suites == suite)
            seen = Settings.of(mine.queries)
            settings[str(suite)] = seen
            matrix, logs = seen.matrix(mine.queries), seen.logarithms(mine.queries)
            for metric in METRICS:
                target = _logarithms(metric, mine)
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
        """One level a suite and metric, shrunk to none."""
        levels = dict(self.levels)
        plain = replace(self, levels={})
        suites = _suites(measurements.queries)
        for metric in self.metrics:
            missed = _logarithms(metric, measurements)
            missed = missed - plain._in_logarithms(metric, measurements.queries)
            for suite in np.unique(suites):
                mine = missed[(suites == suite) & np.isfinite(missed)]
                if len(mine):
                    weight = len(mine) / (len(mine) + PRIOR_ROWS)
                    levels[str(suite), metric] = weight * float(np.median(mine))
        return replace(self, levels=levels)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Values with intervals; NaN for a suite that did not teach."""
        suites = [benchmark_of(query).suite for query in queries]
        values, low, high = {}, {}, {}
        for metric in self.metrics:
            floor = FLOORS.get(metric, 0.0)
            raised = np.exp(self._in_logarithms(metric, queries))
            values[metric] = np.maximum(raised - floor, LEAST)
            if metric in self.widths:
                below, above = self.widths[metric].around(raised, suites)
                low[metric] = np.minimum(np.maximum(below - floor, 0.0), values[metric])
                high[metric] = np.maximum(above - floor, values[metric])
        coverage = next((w.coverage for w in self.widths.values()), None)
        return Predictions(values, low, high, coverage, [self._limits(q) for q in queries])

    def _in_logarithms(self, metric: str, queries: Sequence[Query]) -> Column:
        """Answers as logarithms over the floor, shape (n,); NaN where nothing teaches."""
        found = np.full(len(queries), np.nan)
        suites = _suites(queries)
        for key, law in self._laws_of(metric):
            rows = np.flatnonzero(suites == key[0]).tolist()
            if rows:
                mine, seen = [queries[row] for row in rows], self.settings[key[0]]
                boosted = self.boosters[key].predict(seen.matrix(mine))
                level = self.levels.get(key, 0.0)
                found[rows] = law.predict(seen.logarithms(mine)) + boosted + level
        return found

    def _laws_of(self, metric: str) -> Iterator[tuple[Key, PowerLaw]]:
        return ((key, law) for key, law in self.laws.items() if key[1] == metric)

    def _limits(self, query: Query) -> tuple[str, ...]:
        suite = benchmark_of(query).suite
        if suite not in self.settings:
            return (f"no test of {suite} was measured",)
        return self.settings[suite].limits(query)

    def save(self, folder: Path) -> None:
        """Boosters as LightGBM text, the rest as JSON."""
        keys = sorted(self.laws)
        parameters = {
            "seed": self.seed,
            "trees": self.trees,
            "settings": {suite: seen.to_json() for suite, seen in self.settings.items()},
            "keys": keys,
            "laws": [[*_law(self.laws[key])] for key in keys],
            "levels": [self.levels.get(key) for key in keys],
            "widths": {metric: width.to_json() for metric, width in self.widths.items()},
        }
        write_content(folder, self.name, parameters)
        for number, key in enumerate(keys):
            self.boosters[key].save(folder, f"boosters-{number}")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote.

        Raises:
            BadArtifact: the folder is damaged.
        """
        content = read_content(folder, cls.name)
        keys: list[Key] = [(suite, metric) for suite, metric in content["keys"]]
        laws = [PowerLaw(lv, tuple(mid), tuple(exps)) for lv, mid, exps in content["laws"]]
        boosters = [BoosterBag.load(folder, f"boosters-{n}", 1) for n in range(len(keys))]
        levels = zip(keys, content["levels"], strict=True)
        return cls(
            seed=content["seed"],
            trees=content["trees"],
            settings={s: Settings.from_json(seen) for s, seen in content["settings"].items()},
            laws=dict(zip(keys, laws, strict=True)),
            boosters=dict(zip(keys, boosters, strict=True)),
            levels={key: level for key, level in levels if level is not None},
            widths={m: LogQuantiles.from_json(w) for m, w in content["widths"].items()},
        )


def _law(law: PowerLaw) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    return law.level, law.middle, law.exponents


def _suites(queries: Sequence[Query]) -> NDArray[np.str_]:
    return np.array([benchmark_of(query).suite for query in queries], dtype=np.str_)


def _logarithms(metric: str, rows: Measurements) -> Column:
    """Log of what was measured over the floor, shape (n,); NaN where nothing was."""
    measured = rows.values.get(metric, np.full(len(rows), np.nan))
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(measured + FLOORS.get(metric, 0.0))
    return np.where(np.isfinite(logs), logs, np.nan)
