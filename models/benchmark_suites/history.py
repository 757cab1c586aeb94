"""Results of benchmarked systems in future rounds, predicted from those of earlier rounds.

An additive Gaussian process predicts the logarithm of throughput per device times the arithmetic
per sample. Systems whose model, scenario and device occur in the training set are predicted mainly
from their own history, others from what those keys have in common and from the spec sheet of the
device. A second process predicts how much slower a stream is, which runs one query at a time,
relative to the first; a third one predicts power at the wall. Energy is power over throughput.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from forerun.data.columns import Column, Columns, Mask, Names, finite_log
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Benchmark
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.benchmark_suites.history_coverage import HistoryCoverage
from forerun.models.benchmark_suites.history_features import (
    SPEED,
    STREAM,
    WALL_POWER,
    as_offline,
    device_counts,
    history_rows,
    in_streams,
    samples_per_query,
)
from forerun.models.benchmark_suites.history_suites import history_suites, usual_history_settings
from forerun.models.conformal import LogQuantiles, held_out_folds
from forerun.models.estimator import SETTING
from forerun.models.gaussian_process.additive_categorical import (
    NOISE,
    AdditiveCategoricalProcess,
    KeyedRows,
    Term,
)
from forerun.models.known_suites import KnownSuite
from forerun.models.prediction import Predictions

METRICS = ("samples_per_s", "latency_ms", "wall_power_w", "wall_energy_per_sample_j")
OWN = ("device", "part", "submitter", "platform")
"""Keys that carry an adaptation to other rows; the support set of a system says nothing about the
same models on other devices."""

LATE_ROUNDS = 2
"""Last rounds that are held out for calibration, each predicted from the rounds before it."""
DEVICE_FOLDS = 3
"""Folds of held-out devices for calibration."""
SAMPLED_ROWS = 2400
"""Size of the random sample of rows that folds of devices are fitted on."""
FEWEST_ROWS = 8
"""A process is not fitted to fewer rows."""
KINDS: Mapping[str, tuple[Term, ...]] = {"speed": SPEED, "stream": STREAM, "power": WALL_POWER}
"""Process -> terms of its covariance."""


@dataclass(frozen=True)
class BenchmarkHistory(StoredPredictor):
    """Throughput, latency, and power at the wall of systems under a suite of benchmarks.

    Attributes:
        seed: of the sample that hyperparameters are fitted on, and of folds.
        processes: key of `KINDS` -> process over the logarithms.
        shifts: key of `KINDS` -> process over residuals of a support set, added by `adapt`.
        seen: keys that occur in the training set.
        widths: metric -> quantiles of log residuals on held-out rows, by the amount of history.
    """

    name: ClassVar[str] = "benchmark_history"
    seed: int = field(default=0, metadata=SETTING)
    processes: Mapping[str, AdditiveCategoricalProcess] = field(default_factory=dict)
    shifts: Mapping[str, AdditiveCategoricalProcess] = field(default_factory=dict)
    seen: HistoryCoverage = field(default_factory=HistoryCoverage)
    widths: Mapping[str, LogQuantiles] = field(default_factory=dict)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics of the training set; those of power only if it has measurements of power."""
        return METRICS if "power" in self.processes or not self.processes else METRICS[:2]

    def answers(self, query: Query) -> bool:
        """Whether the query is about a benchmark of a suite in the training set."""
        workload = query.workload
        return isinstance(workload, Benchmark) and workload.suite in self.seen.suites

    def known_suites(self) -> tuple[KnownSuite, ...]:
        """The suites in the training set; none before `fit`."""
        return self._suites

    @cached_property
    def _suites(self) -> tuple[KnownSuite, ...]:
        """They list the values of all training rows, which takes milliseconds."""
        process = self.processes.get("speed")
        return () if process is None else history_suites(self.seen, process.rows, self.metrics)

    def usual_settings(self, query: Query) -> Mapping[str, float | str]:
        """Settings that most training rows of the query's device and model have."""
        return usual_history_settings(query, self.processes["speed"].rows)

    def fit(self, measurements: Measurements) -> Self:
        """Fit on all rounds, and calibrate intervals on held-out late rounds and devices."""
        rows = history_rows(measurements.queries)
        values = Logarithms.of(measurements, rows)
        fitted = self._fitted(measurements.queries, rows, values)
        residuals: dict[str, list[Column]] = {metric: [] for metric in METRICS}
        strata: list[Names] = []
        for train, held in _foldings(rows, self.seed):
            queries = measurements.take(train).queries
            part = fitted._fitted(queries, rows.take(train), values.take(train))
            held_rows = rows.take(held)
            strata.append(part.seen.strata(held_rows))
            of_rate = values.rate[held] - part._rates(held_rows)
            of_power = values.power[held] - part._of("power", held_rows)
            streams = in_streams(held_rows)
            residuals["samples_per_s"].append(np.where(streams, np.nan, of_rate))
            residuals["latency_ms"].append(np.where(streams, -of_rate, np.nan))
            residuals["wall_power_w"].append(of_power)
            residuals["wall_energy_per_sample_j"].append(of_power - of_rate)
        if not strata:
            return fitted
        labels = np.concatenate(strata)
        widths = {
            metric: LogQuantiles.of(np.concatenate(parts), labels)
            for metric, parts in residuals.items()
        }
        return replace(fitted, widths=widths)

    def _fitted(self, queries: Sequence[Query], rows: KeyedRows, values: "Logarithms") -> Self:
        """Fit all processes; one that was fitted before keeps its hyperparameters."""
        streams = in_streams(rows)
        bare = replace(self, processes={}, shifts={}, seen=HistoryCoverage.of(queries, rows))
        fitted = self._with(bare, "speed", rows, np.where(streams, np.nan, values.rate))
        rest = np.where(streams, values.rate - fitted._rates(rows), np.nan)
        fitted = self._with(fitted, "stream", rows, rest)
        return self._with(fitted, "power", rows, values.power)

    def _with(self, other: Self, kind: str, rows: KeyedRows, values: Column) -> Self:
        """The other predictor with one more process, if at least FEWEST_ROWS rows have a value."""
        known = np.isfinite(values)
        if known.sum() < FEWEST_ROWS:
            return other
        rows, values, before = rows.take(known), values[known], self.processes.get(kind)
        terms, noise = (KINDS[kind], NOISE) if before is None else (before.terms, before.noise)
        learn = before is None
        process = AdditiveCategoricalProcess.fit(
            rows, values, terms, noise=noise, learn=learn, seed=self.seed
        )
        return replace(other, processes={**other.processes, kind: process})

    def adapt(self, measurements: Measurements) -> Self:
        """Correct rows that share a key of OWN with the support set, by its log residuals."""
        rows = history_rows(measurements.queries)
        values, streams = Logarithms.of(measurements, rows), in_streams(rows)
        adapted = replace(self, shifts={})
        residuals = values.rate - adapted._rates(rows)
        adapted = adapted._shifted("speed", rows, np.where(streams, np.nan, residuals))
        residuals = values.rate - adapted._rates(rows)
        adapted = adapted._shifted("stream", rows, np.where(streams, residuals, np.nan))
        return adapted._shifted("power", rows, values.power - adapted._of("power", rows))

    def _shifted(self, kind: str, rows: KeyedRows, residuals: Column) -> Self:
        known = np.isfinite(residuals)
        if kind not in self.processes or not known.any():
            return self
        shift = self.processes[kind].corrected(rows.take(known), residuals[known], OWN)
        return replace(self, shifts={**self.shifts, kind: shift})

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Predictions with intervals; NaN for a metric that the scenario does not have."""
        rows = history_rows(queries)
        count = device_counts(queries)
        streams = in_streams(rows)
        each = np.exp(self._rates(rows) - rows.numbers["work"])
        watts = np.exp(self._of("power", rows)) * count
        per_sample = watts / np.where(streams, each * samples_per_query(queries), each * count)
        values = {
            "samples_per_s": np.where(streams, np.nan, each * count),
            "latency_ms": np.where(streams, 1e3 / each, np.nan),
            "wall_power_w": watts,
            "wall_energy_per_sample_j": per_sample,
        }
        values = {metric: values[metric] for metric in self.metrics}
        strata = self.seen.strata(rows).tolist()
        low, high = {}, {}
        for metric in values:
            if metric in self.widths:
                low[metric], high[metric] = self.widths[metric].around(values[metric], strata)
        coverage = next((w.coverage for w in self.widths.values()), None)
        limits = self.seen.limits(queries, rows)
        return Predictions(values, low, high, coverage, limits)

    def _rates(self, rows: KeyedRows) -> Column:
        """Log arithmetic per second and device, or of one query for a stream, shape (n,)."""
        rates = self._of("speed", as_offline(rows))
        streams = in_streams(rows)
        if "stream" not in self.processes or not streams.any():
            return rates
        if "speed" not in self.processes:
            rates = np.where(streams, 0.0, np.nan)
        rates[streams] += self._of("stream", rows.take(streams))
        return rates

    def _of(self, kind: str, rows: KeyedRows) -> Column:
        """Mean of one process after adaptation, shape (n,); NaN if it was not fitted."""
        if kind not in self.processes:
            return np.full(len(rows), np.nan)
        mean = self.processes[kind].predict(rows)
        shift = self.shifts.get(kind)
        return mean if shift is None else mean + shift.predict(rows)


@dataclass(frozen=True)
class Logarithms(Columns):
    """Logarithms of the measured values of n rows; NaN where nothing was measured.

    Attributes:
        rate: of arithmetic per second and device in units of `work`, shape (n,); for a stream, of
            arithmetic per second of one query.
        power: of watts at the wall per device, shape (n,); for a stream without a measurement of
            power, of its energy over its latency.
    """

    rate: Column
    power: Column

    @classmethod
    def of(cls, measurements: Measurements, rows: KeyedRows) -> Self:
        """Logarithms from the metrics that each row has."""
        rate, latency, watts, energy = (measurements.column(metric) for metric in METRICS)
        count = device_counts(measurements.queries)
        with np.errstate(invalid="ignore", divide="ignore"):
            each = np.where(np.isnan(rate), 1e3 / latency, rate / count)
            implied = energy * samples_per_query(measurements.queries) / (latency / 1e3)
            power = np.where(np.isnan(watts), implied, watts) / count
        return cls(finite_log(each) + rows.numbers["work"], finite_log(power))


def _foldings(rows: KeyedRows, seed: int) -> list[tuple[Mask, Mask]]:
    """Folds for calibration: late rounds held out, then groups of devices held out.

    Predictions for unseen devices need no long history, so their training rows are a sample.

    Returns:
        Pairs of masks (training rows, held-out rows) of shape (n,).
    """
    times = rows.numbers["time"]
    folds = [(times < time, times == time) for time in np.unique(times)[1:][-LATE_ROUNDS:]]
    devices = rows.keys["device"]
    if len(np.unique(devices)) > DEVICE_FOLDS:
        drawn = np.random.default_rng(seed).permutation(len(rows)) < SAMPLED_ROWS
        for held in held_out_folds(devices, DEVICE_FOLDS, seed):
            folds.append((~held & drawn, held))
    return folds
