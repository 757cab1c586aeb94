"""Predicts results of benchmarked systems in future rounds from those of earlier rounds.

An additive Gaussian process on categorical keys and numbers predicts the logarithm of throughput
per device times the arithmetic per sample. Systems whose model, scenario and device occur in the
training set are predicted mainly from their own history, others from what these keys share and from
the device's spec sheet (`HistoryCoverage`). A second process predicts how much slower a stream is,
which runs one query at a time; a third predicts power at the wall. Energy is power over throughput.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Final, Self

import numpy as np

from forerun.data.columns import Column, Columns, Mask, Names, finite_log
from forerun.data.device import Device
from forerun.data.facts import facts_of
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Benchmark
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import LogQuantiles, held_out_folds
from forerun.models.domain.feature_range import sheet
from forerun.models.gaussian_process.additive_categorical import (
    NOISE,
    AdditiveCategoricalProcess,
    KeyedRows,
    Term,
)
from forerun.models.known_suites import KnownSetting, KnownSuite
from forerun.models.limit import Limit
from forerun.models.prediction import Predictions
from forerun.models.predictor import SETTING

HISTORIES = (
    ("system", ("submitter", "part", "model", "scenario", "stack")),
    ("part", ("part", "model", "scenario", "stack")),
    ("device", ("device", "base")),
    ("model", ("base", "kind")),
)
"""(level, keys) from most to least specific. A query's level of history is the first one whose key
values occur together in a training row."""

NOTHING = "nothing"
"""Level of a query without history."""
YEARS_AHEAD = 1.0
"""Years after the last training round from which a query gets a limit."""


@dataclass(frozen=True)
class HistoryCoverage:
    """Values of the keys in the training set.

    Attributes:
        suites: names of the suites.
        known: level of history -> joined values of its keys.
        values: key -> its values.
        years: first and last round, in years since v2.0.
        scale: largest centred logarithm of a number of devices.
    """

    suites: tuple[str, ...] = ()
    known: Mapping[str, frozenset[str]] = field(default_factory=dict)
    values: Mapping[str, frozenset[str]] = field(default_factory=dict)
    years: tuple[float, float] = (0.0, 0.0)
    scale: float = 0.0

    @classmethod
    def of(cls, queries: Sequence[Query], rows: KeyedRows) -> Self:
        """Coverage of n training queries, given with their rows."""
        suites = {q.workload.suite for q in queries if isinstance(q.workload, Benchmark)}
        known = {level: frozenset(_joined(rows, keys)) for level, keys in HISTORIES}
        values = {
            key: frozenset(np.unique(rows.keys[key]).tolist())
            for key in ("base", "scenario", "device")
        }
        time, scale = rows.numbers["time"], rows.numbers["scale"]
        years = (float(time.min()), float(time.max()))
        return cls(tuple(sorted(suites)), known, values, years, float(scale.max()))

    def strata(self, rows: KeyedRows) -> Names:
        """Level of history of each row, shape (n,)."""
        levels = np.full(len(rows), NOTHING, dtype="<U16")
        for level, keys in reversed(HISTORIES):
            known = [text in self.known.get(level, ()) for text in _joined(rows, keys)]
            levels[np.array(known, dtype=np.bool_)] = level
        return levels

    def limits(self, queries: Sequence[Query], rows: KeyedRows) -> list[tuple[Limit, ...]]:
        """Limits of n queries: what lies outside the training set."""
        limits = []
        for row, query in enumerate(queries):
            model, scenario = rows.keys["base"][row], rows.keys["scenario"][row]
            lines = []
            if model not in self.values.get("base", ()):
                lines.append(f"the training set has no result of the model {model}")
            if scenario not in self.values.get("scenario", ()):
                lines.append(f"the training set has no result of the scenario {scenario}")
            if rows.keys["device"][row] not in self.values.get("device", ()):
                sheet = "" if query.device.has_sheet else ", and it has no spec sheet"
                lines.append(f"the training set has no result of this device{sheet}")
            if rows.numbers["scale"][row] > self.scale + 1e-9:
                count = query.operation.device_count
                lines.append(f"{count} devices exceed every system of the training set")
            if rows.numbers["time"][row] > self.years[1] + YEARS_AHEAD:
                lines.append("the round is over a year later than the training set")
            limits.append(tuple(map(Limit, lines)))
        return limits


def _joined(rows: KeyedRows, keys: Sequence[str]) -> list[str]:
    columns = [rows.keys[key].tolist() for key in keys]
    return ["|".join(texts) for texts in zip(*columns, strict=True)]


STREAMS: Final = ("SingleStream", "MultiStream")
"""Scenarios that run one query at a time and measure its latency."""
KEYS: Final = (
    *("model", "base", "scenario", "framework", "power_mode", "system_type", "submitter"),
    *("platform", "part", "device", "kind", "power", "server"),
    *("reference", "stack"),
)
FIRST_ROUND: Final = 200.0
"""Number of round v2.0, the default of queries without a round."""
USUAL_GFLOP: Final = 500.0
"""Arithmetic per sample, in GFLOP, that is the zero point of the number `work`."""
USUAL_COUNT: Final = 1.4
"""Logarithm of four devices, the zero point of the number `scale`."""


def history_rows(queries: Sequence[Query]) -> KeyedRows:
    """Keys and numbers of n benchmarks; a missing key is empty and equals no other."""
    settings = [query.benchmark.by_name for query in queries]
    keys = {
        name: np.array([str(s.get(name, "")) for s in settings], dtype=np.str_) for name in KEYS
    }
    keys["base"] = np.array([base_model(str(s.get("model", ""))) for s in settings], dtype=np.str_)
    keys["device"] = np.array([device_key(query.device) for query in queries], dtype=np.str_)
    keys["kind"] = np.array([query.device.kind for query in queries], dtype=np.str_)
    keys["stack"] = np.where(keys["framework"] == "vendor", "vendor", "portable")
    keys["power"] = np.array([f"p{s.get('power_measured', 0)}" for s in settings], dtype=np.str_)
    nodes = np.array([_number(s, "nodes", 1.0) for s in settings])
    cores = np.array([_number(s, "host_cores", np.nan) for s in settings])
    count = device_counts(queries)
    per_device = np.log(np.where(np.isnan(cores), 16.0 * count / nodes, cores) * nodes / count)
    rounds = np.array([_number(s, "round", FIRST_ROUND) for s in settings])
    numbers = {
        "time": round_years(rounds),
        "scale": np.log(count) - USUAL_COUNT,
        "host": per_device - np.log(16.0),
        "work": np.log([_number(s, "gflop", USUAL_GFLOP) / USUAL_GFLOP for s in settings]),
    }
    sheets = [_sheet(query.device) for query in queries]
    return KeyedRows(keys, np.array(sheets, dtype=np.float64).reshape(-1, 6), numbers)


def question_keys(queries: Sequence[Query]) -> Names:
    """Model, scenario and accelerator (as submitted) of each query, joined, shape (n,)."""
    keys = history_rows(queries).keys
    parts = zip(keys["model"], keys["scenario"], keys["part"], strict=True)
    return np.array(["|".join(texts) for texts in parts], dtype=np.str_)


def round_years(rounds: Column) -> Column:
    """Years since v2.0 of rounds numbered 100 x major + minor; there are two per year."""
    return rounds // 100 - 2.0 + rounds % 100 / 2.0


def device_counts(queries: Sequence[Query]) -> Column:
    """Number of devices of each query, shape (n,); a device partition counts as a fraction."""
    shares = np.array([_number(q.benchmark.by_name, "share", 1.0) for q in queries])
    counts = np.array([float(q.operation.device_count) for q in queries])
    return np.asarray(counts * shares, dtype=np.float64)


def is_stream(query: Query) -> bool:
    """Whether the benchmark runs one query at a time, so that latency is measured."""
    return query.benchmark.by_name.get("scenario") in STREAMS


def in_streams(rows: KeyedRows) -> Mask:
    """Which rows run one query at a time, shape (n,)."""
    return np.isin(rows.keys["scenario"], STREAMS)


def as_offline(rows: KeyedRows) -> KeyedRows:
    """The same rows with streams replaced by the scenario Offline on one device."""
    streams = in_streams(rows)
    scenario = np.where(streams, "Offline", rows.keys["scenario"])
    scale = np.where(streams, -USUAL_COUNT, rows.numbers["scale"])
    keys = {**rows.keys, "scenario": scenario}
    return KeyedRows(keys, rows.sheet, {**rows.numbers, "scale": scale})


def samples_per_query(queries: Sequence[Query]) -> Column:
    """Samples per query, shape (n,): eight in MultiStream, else one."""
    scenarios = [query.benchmark.by_name.get("scenario") for query in queries]
    return np.array([8.0 if scenario == STREAMS[1] else 1.0 for scenario in scenarios])


def base_model(model: str) -> str:
    """Name of a model without the accuracy target: `bert` for `bert-99.9`."""
    return model.removesuffix("-99.9").removesuffix("-99")


def device_key(device: Device) -> str:
    """Identity of a device: the figures of its spec sheet, or its name without a sheet."""
    return str(sheet(device)) if device.has_sheet else device.name


def _number(settings: dict[str, float | str], name: str, default: float) -> float:
    value = settings.get(name, default)
    return float(value) if isinstance(value, (int, float)) else default


def _sheet(device: Device) -> list[float]:
    """Logarithms of bandwidth, peaks, memory and design power, relative to those of an A100."""
    if not device.has_sheet:
        return [float("nan")] * 6
    peaks = device.peak_tflops
    dense = peaks.get("fp16") or peaks.get("bf16") or peaks.get("fp32") or max(peaks.values())
    low = peaks.get("int8") or peaks.get("fp8") or dense
    figures = (
        device.bandwidth_gbs / 1500,
        dense / 300,
        low / 600,
        (peaks.get("fp8") or dense) / 300,
        (device.memory_gib or 40) / 40,
        (device.tdp_w or 300) / 300,
    )
    return [float(np.log(figure)) for figure in figures]


_FACTS: Final = facts_of(__file__)
CHOICES: Final = ("framework", "reference", "power_mode", "server", "system_type")
"""Settings with few values, which most rows of a device have in common."""
FREE: Final[Mapping[str, str]] = _FACTS["settings"]["free"]
NUMBERS: Final[Mapping[str, str]] = _FACTS["settings"]["numbers"]


def history_suites(
    seen: HistoryCoverage, rows: KeyedRows, metrics: Sequence[str]
) -> tuple[KnownSuite, ...]:
    """The suites of a history with their settings.

    Args:
        seen: coverage of the training set.
        rows: the training rows of throughput.
        metrics: metrics that the predictor answers.
    """
    devices = dict(zip(rows.keys["device"].tolist(), rows.keys["kind"].tolist(), strict=True))
    # Devices with a spec sheet are keyed by their bracketed figures, so only nameless ones remain.
    nameless = {name: kind for name, kind in devices.items() if name and not name.startswith("(")}
    settings = [
        KnownSetting("model", _values(rows, "model"), required=True),
        KnownSetting("scenario", tuple(sorted(seen.values["scenario"])), required=True),
    ]
    settings += [KnownSetting(name, _values(rows, name)) for name in CHOICES if _values(rows, name)]
    settings += [KnownSetting(n, meaning=words) for n, words in FREE.items() if _values(rows, n)]
    low, high = (_round_number(year) for year in seen.years)
    settings.append(KnownSetting("round", (), low, high, meaning="401 for v4.1"))
    settings += [KnownSetting(name, meaning=words) for name, words in NUMBERS.items()]
    kinds = tuple(sorted(set(devices.values())))
    return tuple(
        KnownSuite(suite, tuple(settings), tuple(metrics), kinds, nameless) for suite in seen.suites
    )


def usual_history_settings(query: Query, rows: KeyedRows) -> dict[str, float | str]:
    """Settings of most training rows like the query.

    Rows of the query's device count if there are any, else all rows. The arithmetic per sample is
    that of the model, and the round is the last one.
    """
    query_row = history_rows([query])
    every = np.ones(len(rows), dtype=np.bool_)
    of_device = rows.keys["device"] == query_row.keys["device"][0]
    of_model = rows.keys["base"] == query_row.keys["base"][0]
    found: dict[str, float | str] = {"round": _round_number(float(rows.numbers["time"].max()))}
    for name in (*CHOICES, "submitter"):
        near = (of_device & of_model, of_device, every)
        usual = next((v for mask in near if (v := _commonest(rows, name, mask))), "")
        alone = name != "submitter" or len(_values(rows, name)) == 1
        if usual and alone:
            found[name] = usual
    part = _commonest(rows, "part", of_device)
    if part:
        found["part"] = part
    if of_model.any() and np.ptp(rows.numbers["work"]) > 0.0:
        work = float(np.median(rows.numbers["work"][of_model]))
        found["gflop"] = float(f"{USUAL_GFLOP * np.exp(work):.4g}")
    return found


def _values(rows: KeyedRows, key: str) -> tuple[str, ...]:
    return tuple(sorted(set(rows.keys[key].tolist()) - {""}))


def _commonest(rows: KeyedRows, key: str, mask: Mask) -> str:
    """The most frequent value in these rows, the first of equally frequent ones; empty for none."""
    counts = Counter(name for name in sorted(rows.keys[key][mask].tolist()) if name)
    return counts.most_common(1)[0][0] if counts else ""


def _round_number(years: float) -> float:
    """The number of a round given its years since v2.0; the inverse of `round_years`."""
    major, half = divmod(years + 2.0, 1.0)
    return 100.0 * major + 2.0 * half


METRICS = ("samples_per_s", "latency_ms", "wall_power_w", "wall_energy_per_sample_j")
OWN = ("device", "part", "submitter", "platform")
"""Keys whose adaptation carries over to other rows. A system's support set does not inform answers
about the same models on other devices."""

LATE_ROUNDS = 2
"""Number of last rounds held out for calibration, each predicted from the rounds before it."""
DEVICE_FOLDS = 3
"""Folds of held-out devices for calibration."""
SAMPLED_ROWS = 2400
"""Size of the random sample of rows that folds of devices are fitted on."""
FEWEST_ROWS = 8
"""Rows below which a process is not fitted."""
KINDS: Mapping[str, tuple[Term, ...]] = {
    kind: tuple(Term(tuple(term["keys"]), term["shape"], term["deviation"]) for term in terms)
    for kind, terms in _FACTS["terms"].items()
}
"""Process -> terms of its covariance."""


@dataclass(frozen=True)
class BenchmarkHistory(StoredPredictor):
    """Throughput, latency, and power at the wall of systems under a suite of benchmarks.

    Attributes:
        seed: of the sample for fitting hyperparameters, and of folds.
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
        """Metrics of the training set; power only if power was measured."""
        return METRICS if "power" in self.processes or not self.processes else METRICS[:2]

    def answers(self, query: Query) -> bool:
        """Whether the query is a benchmark of a suite in the training set."""
        workload = query.workload
        return isinstance(workload, Benchmark) and workload.suite in self.seen.suites

    def known_suites(self) -> tuple[KnownSuite, ...]:
        """The suites in the training set; none before `fit`."""
        return self._suites

    @cached_property
    def _suites(self) -> tuple[KnownSuite, ...]:
        """Cached, because listing the values of all training rows takes milliseconds."""
        process = self.processes.get("speed")
        return () if process is None else history_suites(self.seen, process.rows, self.metrics)

    def usual_settings(self, query: Query) -> Mapping[str, float | str]:
        """Settings of most training rows with the query's device and model."""
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
        """Fit all processes; those fitted before keep their hyperparameters."""
        streams = in_streams(rows)
        bare = replace(self, processes={}, shifts={}, seen=HistoryCoverage.of(queries, rows))
        fitted = self._with(bare, "speed", rows, np.where(streams, np.nan, values.rate))
        rest = np.where(streams, values.rate - fitted._rates(rows), np.nan)
        fitted = self._with(fitted, "stream", rows, rest)
        return self._with(fitted, "power", rows, values.power)

    def _with(self, other: Self, kind: str, rows: KeyedRows, values: Column) -> Self:
        """The other predictor plus a process, if at least FEWEST_ROWS rows have a value."""
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
        """Log arithmetic per second and device (for a stream, per query), shape (n,)."""
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
    """Logarithms of the measured values of n rows; NaN where not measured.

    Attributes:
        rate: of arithmetic per second and device in units of `work`, shape (n,); for a stream, of
            arithmetic per second of one query.
        power: of watts at the wall per device, shape (n,); for a stream without measured power, of
            its energy over its latency.
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

    Predictions for unseen devices need no long history, so they train on a sample.

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
