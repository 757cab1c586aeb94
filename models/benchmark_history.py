"""Results of benchmarked systems to come, from those of earlier rounds.

Throughput a device (or one over the latency of a stream) times the arithmetic of a sample is what
a crossed process learns: a system whose model, scenario and device were seen is answered by its
history, another by what is known of its parts and by its device's spec sheet. Power at the wall is
a second process; energy is the one over the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Benchmark
from forerun.models.artifact import read_content, write_content
from forerun.models.calibration import LogQuantiles, held_out_folds
from forerun.models.crossed_process import CrossedProcess, Rows
from forerun.models.history_rows import (
    SPEED,
    WALL_POWER,
    device_counts,
    history_rows,
    is_stream,
    samples_per_query,
)
from forerun.models.prediction import Predictions
from forerun.models.seen_systems import SeenSystems

Column = NDArray[np.float64]
METRICS = ("samples_per_s", "latency_ms", "wall_power_w", "wall_energy_per_sample_j")
OWN = ("device", "part", "submitter", "platform")
"""Keys of what is adapted to: a few rows say nothing about models on other devices."""

LATE_ROUNDS = 2
DEVICE_FOLDS = 3
SAMPLED_ROWS = 2400
FEWEST_POWER_ROWS = 8


@dataclass(frozen=True)
class BenchmarkHistory:
    """Throughput, latency and power at the wall of systems under a suite of benchmarks.

    Attributes:
        seed: of the sample that deviations are learnt from, and of folds.
        speed, power: processes of logarithms; None where nothing teaches.
        speed_shift, power_shift: what `adapt` adds to them.
        seen: which systems taught.
        widths: metric -> quantiles of what is missed, by how much history there is.
    """

    name: ClassVar[str] = "benchmark_history"
    seed: int = 0
    speed: CrossedProcess | None = None
    power: CrossedProcess | None = None
    speed_shift: CrossedProcess | None = None
    power_shift: CrossedProcess | None = None
    seen: SeenSystems = field(default_factory=SeenSystems)
    widths: Mapping[str, LogQuantiles] = field(default_factory=dict)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Those of power only where training measured it."""
        return METRICS if self.power is not None or self.speed is None else METRICS[:2]

    def answers(self, query: Query) -> bool:
        """Benchmarks of a suite that teaches."""
        workload = query.workload
        return isinstance(workload, Benchmark) and workload.suite in self.seen.suites

    def fit(self, measurements: Measurements) -> Self:
        """Fit on all rounds; widths come from later rounds and from devices, held out."""
        rows = history_rows(measurements.queries)
        speeds, powers = _speeds(measurements, rows), _powers(measurements)
        fitted = self._fitted(measurements.queries, rows, speeds, powers)
        found: dict[str, list[Column]] = {metric: [] for metric in METRICS}
        strata: list[NDArray[np.str_]] = []
        for train, held in _foldings(rows, self.seed):
            queries = [q for q, mine in zip(measurements.queries, train, strict=True) if mine]
            part = fitted._fitted(queries, rows.take(train), speeds[train], powers[train])
            theirs = rows.take(held)
            strata.append(part.seen.strata(theirs))
            missed, missed_power = (
                values[held] - part._of(kind, theirs)
                for kind, values in (("speed", speeds), ("power", powers))
            )
            streams = np.array([is_stream(measurements.queries[i]) for i in np.flatnonzero(held)])
            found["samples_per_s"].append(np.where(streams, np.nan, missed))
            found["latency_ms"].append(np.where(streams, -missed, np.nan))
            found["wall_power_w"].append(missed_power)
            found["wall_energy_per_sample_j"].append(missed_power - missed)
        if not strata:
            return fitted
        labels = np.concatenate(strata)
        widths = {
            metric: LogQuantiles.of(np.concatenate(parts), labels) for metric, parts in found.items()
        }
        return replace(fitted, widths=widths)

    def _fitted(self, queries: Sequence[Query], rows: Rows, speeds: Column, powers: Column) -> Self:
        """Both processes; what deviations a predictor has already learnt are kept."""
        known, measured = np.isfinite(speeds), np.isfinite(powers)
        speed = self._process("speed", rows.take(known), speeds[known])
        power = None
        if measured.sum() >= FEWEST_POWER_ROWS:
            power = self._process("power", rows.take(measured), powers[measured])
        seen = SeenSystems.of(queries, rows)
        return replace(
            self, speed=speed, power=power, speed_shift=None, power_shift=None, seen=seen
        )

    def _process(self, kind: str, rows: Rows, values: Column) -> CrossedProcess:
        earlier: CrossedProcess | None = getattr(self, kind)
        if earlier is not None:
            return CrossedProcess.fit(
                rows, values, earlier.terms, noise=earlier.noise, learn=False, seed=self.seed
            )
        terms = SPEED if kind == "speed" else WALL_POWER
        return CrossedProcess.fit(rows, values, terms, seed=self.seed)

    def adapt(self, measurements: Measurements) -> Self:
        """What these rows miss, carried over to others of their device, part or submitter."""
        plain = replace(self, speed_shift=None, power_shift=None)
        rows = history_rows(measurements.queries)
        shifts: dict[str, Any] = {}
        for kind, values in (
            ("speed", _speeds(measurements, rows)),
            ("power", _powers(measurements)),
        ):
            process: CrossedProcess | None = getattr(self, kind)
            missed = values - plain._of(kind, rows)
            known = np.isfinite(missed)
            if process is not None and known.any():
                shift = process.corrected(rows.take(known), missed[known], OWN)
                shifts[f"{kind}_shift"] = shift
        return replace(self, **shifts)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Values with intervals; NaN for a metric that a scenario does not have."""
        rows = history_rows(queries)
        count = device_counts(queries)
        streams = np.array([is_stream(query) for query in queries], dtype=np.bool_)
        each = np.exp(self._of("speed", rows) - rows.numbers["work"])
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

    def _of(self, kind: str, rows: Rows) -> Column:
        """Expected logarithms, shape (n,); NaN where nothing teaches."""
        process: CrossedProcess | None = getattr(self, kind)
        shift: CrossedProcess | None = getattr(self, f"{kind}_shift")
        if process is None:
            return np.full(len(rows), np.nan)
        found = process.predict(rows)
        return found if shift is None else found + shift.predict(rows)

    def save(self, folder: Path) -> None:
        """Everything as JSON."""
        processes = {
            kind: None if process is None else process.to_json()
            for kind, process in (
                ("speed", self.speed),
                ("power", self.power),
                ("speed_shift", self.speed_shift),
                ("power_shift", self.power_shift),
            )
        }
        widths = {metric: width.to_json() for metric, width in self.widths.items()}
        parameters = {"seed": self.seed, "seen": self.seen.to_json(), "widths": widths}
        write_content(folder, self.name, parameters | processes)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote.

        Raises:
            BadArtifact: the folder is damaged.
        """
        content = read_content(folder, cls.name)
        processes = {
            kind: None if content[kind] is None else CrossedProcess.from_json(content[kind])
            for kind in ("speed", "power", "speed_shift", "power_shift")
        }
        widths = {m: LogQuantiles.from_json(w) for m, w in content["widths"].items()}
        seen = SeenSystems.from_json(content["seen"])
        return cls(seed=content["seed"], seen=seen, widths=widths, **processes)


def _foldings(rows: Rows, seed: int) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
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


def _speeds(measurements: Measurements, rows: Rows) -> Column:
    """Log of arithmetic a second and device, in units of `work`; NaN where nothing was measured."""
    n = len(measurements)
    rate = measurements.values.get("samples_per_s", np.full(n, np.nan))
    latency = measurements.values.get("latency_ms", np.full(n, np.nan))
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(np.where(np.isnan(rate), 1e3 / latency, rate / device_counts(measurements.queries)))
    found: Column = np.where(np.isfinite(logs), logs, np.nan) + rows.numbers["work"]
    return found


def _powers(measurements: Measurements) -> Column:
    """Log of watts a device; of streams, whose energy is measured, energy over latency."""
    n = len(measurements)
    empty = np.full(n, np.nan)
    watts = measurements.values.get("wall_power_w", empty)
    energy = measurements.values.get("wall_energy_per_sample_j", empty)
    latency = measurements.values.get("latency_ms", empty)
    with np.errstate(invalid="ignore", divide="ignore"):
        implied = energy * samples_per_query(measurements.queries) / (latency / 1e3)
        logs = np.log(np.where(np.isnan(watts), implied, watts) / device_counts(measurements.queries))
    return np.where(np.isfinite(logs), logs, np.nan)
