"""Results of benchmarked systems to come, from those of earlier rounds.

Throughput a device, times the arithmetic of a sample, is what a crossed process learns: a system
whose model, scenario and device were seen is answered by its history, another by what is known of
its parts and by its device's spec sheet. How much slower a stream is, a query at a time, is a
second process over the first; power at the wall is a third; energy is power over throughput.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Benchmark
from forerun.models.artifact.sealed_folder import read_content, write_content
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
from forerun.models.conformal.intervals import LogQuantiles, held_out_folds
from forerun.models.gaussian_process.additive_categorical import (
    NOISE,
    AdditiveCategoricalProcess,
    KeyedRows,
    Term,
)
from forerun.models.prediction import Predictions

Column = NDArray[np.float64]
METRICS = ("samples_per_s", "latency_ms", "wall_power_w", "wall_energy_per_sample_j")
OWN = ("device", "part", "submitter", "platform")
"""Keys of what is adapted to: a few rows say nothing about models on other devices."""

LATE_ROUNDS = 2
DEVICE_FOLDS = 3
SAMPLED_ROWS = 2400
FEWEST_ROWS = 8
KINDS: Mapping[str, tuple[Term, ...]] = {"speed": SPEED, "stream": STREAM, "power": WALL_POWER}
"""Process -> terms of its covariance."""


@dataclass(frozen=True)
class BenchmarkHistory:
    """Throughput, latency and power at the wall of systems under a suite of benchmarks.

    Attributes:
        seed: of the sample that deviations are learnt from, and of folds.
        processes: of logarithms, by `KINDS`.
        shifts: what `adapt` adds to them.
        seen: which systems taught.
        widths: metric -> quantiles of what is missed, by how much history there is.
    """

    name: ClassVar[str] = "benchmark_history"
    seed: int = 0
    processes: Mapping[str, AdditiveCategoricalProcess] = field(default_factory=dict)
    shifts: Mapping[str, AdditiveCategoricalProcess] = field(default_factory=dict)
    seen: HistoryCoverage = field(default_factory=HistoryCoverage)
    widths: Mapping[str, LogQuantiles] = field(default_factory=dict)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Those of power only where training measured it."""
        return METRICS if "power" in self.processes or not self.processes else METRICS[:2]

    def answers(self, query: Query) -> bool:
        """Benchmarks of a suite that teaches."""
        workload = query.workload
        return isinstance(workload, Benchmark) and workload.suite in self.seen.suites

    def fit(self, measurements: Measurements) -> Self:
        """Fit on all rounds; widths come from later rounds and from devices, held out."""
        rows = history_rows(measurements.queries)
        values = Logarithms.of(measurements, rows)
        fitted = self._fitted(measurements.queries, rows, values)
        found: dict[str, list[Column]] = {metric: [] for metric in METRICS}
        strata: list[NDArray[np.str_]] = []
        for train, held in _foldings(rows, self.seed):
            queries = [q for q, mine in zip(measurements.queries, train, strict=True) if mine]
            part = fitted._fitted(queries, rows.take(train), values.take(train))
            theirs = rows.take(held)
            strata.append(part.seen.strata(theirs))
            missed = values.rate[held] - part._rates(theirs)
            missed_power = values.power[held] - part._of("power", theirs)
            streams = in_streams(theirs)
            found["samples_per_s"].append(np.where(streams, np.nan, missed))
            found["latency_ms"].append(np.where(streams, -missed, np.nan))
            found["wall_power_w"].append(missed_power)
            found["wall_energy_per_sample_j"].append(missed_power - missed)
        if not strata:
            return fitted
        labels = np.concatenate(strata)
        widths = {
            metric: LogQuantiles.of(np.concatenate(parts), labels)
            for metric, parts in found.items()
        }
        return replace(fitted, widths=widths)

    def _fitted(self, queries: Sequence[Query], rows: KeyedRows, values: "Logarithms") -> Self:
        """All processes; the deviations of one that was fitted already are kept."""
        streams = in_streams(rows)
        bare = replace(self, processes={}, shifts={}, seen=HistoryCoverage.of(queries, rows))
        found = self._with(bare, "speed", rows, np.where(streams, np.nan, values.rate))
        rest = np.where(streams, values.rate - found._rates(rows), np.nan)
        found = self._with(found, "stream", rows, rest)
        return self._with(found, "power", rows, values.power)

    def _with(self, other: Self, kind: str, rows: KeyedRows, values: Column) -> Self:
        """Another predictor with one more process, where enough was measured."""
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
        """What these rows miss, carried over to others of their device, part or submitter."""
        rows = history_rows(measurements.queries)
        values, streams = Logarithms.of(measurements, rows), in_streams(rows)
        adapted = replace(self, shifts={})
        missed = values.rate - adapted._rates(rows)
        adapted = adapted._shifted("speed", rows, np.where(streams, np.nan, missed))
        missed = values.rate - adapted._rates(rows)
        adapted = adapted._shifted("stream", rows, np.where(streams, missed, np.nan))
        return adapted._shifted("power", rows, values.power - adapted._of("power", rows))

    def _shifted(self, kind: str, rows: KeyedRows, missed: Column) -> Self:
        known = np.isfinite(missed)
        if kind not in self.processes or not known.any():
            return self
        shift = self.processes[kind].corrected(rows.take(known), missed[known], OWN)
        return replace(self, shifts={**self.shifts, kind: shift})

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Values with intervals; NaN for a metric that a scenario does not have."""
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
        """Logarithms of arithmetic a second and device, shape (n,); of a stream, of one query."""
        found = self._of("speed", as_offline(rows))
        streams = in_streams(rows)
        if "stream" not in self.processes or not streams.any():
            return found
        if "speed" not in self.processes:
            found = np.where(streams, 0.0, np.nan)
        found[streams] += self._of("stream", rows.take(streams))
        return found

    def _of(self, kind: str, rows: KeyedRows) -> Column:
        """What one process expects, shape (n,); NaN where nothing teaches."""
        if kind not in self.processes:
            return np.full(len(rows), np.nan)
        found = self.processes[kind].predict(rows)
        shift = self.shifts.get(kind)
        return found if shift is None else found + shift.predict(rows)

    def save(self, folder: Path) -> None:
        """Everything as JSON."""
        parameters = {
            "seed": self.seed,
            "seen": self.seen.to_json(),
            "processes": {kind: p.to_json() for kind, p in self.processes.items()},
            "shifts": {kind: p.to_json() for kind, p in self.shifts.items()},
            "widths": {metric: width.to_json() for metric, width in self.widths.items()},
        }
        write_content(folder, self.name, parameters)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote.

        Raises:
            BadArtifact: the folder is damaged.
        """
        content = read_content(folder, cls.name)
        return cls(
            seed=content["seed"],
            processes={
                k: AdditiveCategoricalProcess.from_json(p) for k, p in content["processes"].items()
            },
            shifts={
                k: AdditiveCategoricalProcess.from_json(p) for k, p in content["shifts"].items()
            },
            seen=HistoryCoverage.from_json(content["seen"]),
            widths={m: LogQuantiles.from_json(w) for m, w in content["widths"].items()},
        )


@dataclass(frozen=True)
class Logarithms:
    """What was measured on n rows, NaN where nothing was.

    Attributes:
        rate: of arithmetic a second and device, in units of `work`; of a stream, of one query.
        power: of watts at the wall a device; of a stream, energy over latency.
    """

    rate: Column
    power: Column

    @classmethod
    def of(cls, measurements: Measurements, rows: KeyedRows) -> Self:
        """From the metrics that a row has."""
        nothing = np.full(len(measurements), np.nan)
        rate, latency, watts, energy = (measurements.values.get(m, nothing) for m in METRICS)
        count = device_counts(measurements.queries)
        with np.errstate(invalid="ignore", divide="ignore"):
            each = np.log(np.where(np.isnan(rate), 1e3 / latency, rate / count))
            implied = energy * samples_per_query(measurements.queries) / (latency / 1e3)
            power = np.log(np.where(np.isnan(watts), implied, watts) / count)
        rates = np.where(np.isfinite(each), each, np.nan) + rows.numbers["work"]
        return cls(rates, np.where(np.isfinite(power), power, np.nan))

    def take(self, rows: NDArray[np.bool_]) -> "Logarithms":
        """Those where the mask is True."""
        return Logarithms(self.rate[rows], self.power[rows])


def _foldings(rows: KeyedRows, seed: int) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """(rows to fit on, rows to answer): late rounds by those before them, devices by others.

    What devices unseen are answered by needs no long history: a sample of the others is enough.
    """
    times = rows.numbers["time"]
    found = [(times < time, times == time) for time in np.unique(times)[1:][-LATE_ROUNDS:]]
    devices = rows.keys["device"]
    if len(np.unique(devices)) > DEVICE_FOLDS:
        drawn = np.random.default_rng(seed).permutation(len(rows)) < SAMPLED_ROWS
        for held in held_out_folds(devices, DEVICE_FOLDS, seed):
            found.append((~held & drawn, held))
    return found
