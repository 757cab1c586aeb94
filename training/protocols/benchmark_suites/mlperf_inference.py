"""mlperf_inference: later rounds predicted from earlier ones, and held-out accelerators.

Throughput is that of the whole system; its relative error equals that of the throughput per
accelerator. `throughput` has the rows whose model, scenario and accelerator occur in an earlier
round, `throughput_new` the rows without such a history, `throughput_cpu*` systems without an
accelerator.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.columns import Column, Mask
from forerun.data.datasets.benchmark_suites.mlperf_inference import (
    CLOSED,
    LATENCY,
    TOKENS,
    MlperfInference,
    accelerator,
    device_keys,
    round_numbers,
    runs_on_cpu,
    share_in_use,
)
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.data.workload import Benchmark
from forerun.models.benchmark_suites.history import (
    device_counts,
    history_rows,
    is_stream,
    question_keys,
)
from forerun.training.protocols import protocol as dp

SUITE: Final = "mlperf_inference"
TOKENS_PER_SAMPLE: Final[Mapping[str, float]] = MlperfInference.facts["tokens_per_sample"]

ASKED: Final = (
    *("round", "submitter", "system_type", "system", "platform", "accelerator", "nodes"),
    *("accelerators_per_node", "cpu", "cpus_per_node", "cores_per_cpu", "framework", "model"),
    *("scenario", "result", "result_units", "power_result"),
)
"""Columns that a table must have."""

SAMPLES_PER_QUERY: Final = 8
"""Samples of a query in the scenario MultiStream."""

PORTABLE: Final = MlperfInference.facts["portable"]

VENDORS: Final = MlperfInference.facts["vendors"]

GFLOP_PER_SAMPLE: Final[Mapping[str, float]] = MlperfInference.facts["gflop_per_sample"]

_REFERENCE: Final = re.compile("-reference-|reference implementation", re.IGNORECASE)
_NAMED_NODES: Final = re.compile(r"(?:.*[_-])?([1-9])-node-", re.IGNORECASE)
_TRITON: Final = re.compile("triton", re.IGNORECASE)
_EFFICIENT: Final = re.compile(r"max-?q|\bee\b|_ee\b|low power", re.IGNORECASE)


def run_measurements(rows: pd.DataFrame, catalog: DeviceCatalog) -> Measurements:
    """Rows of the table `closed_division` as measured benchmarks.

    `samples_per_s` is that of the whole system, with tokens converted to samples. Groups: `round`,
    `device` (the part), `accelerator` (as the submitter wrote it), `submitter`, `question` (model,
    scenario and accelerator), `counted_in` (divisor that converts a result to samples).
    """
    keys, records = device_keys(rows), rows.to_dict("records")
    queries = [_query(row, key, catalog) for row, key in zip(records, keys, strict=True)]
    groups = {
        "round": rows["round"],
        "device": keys,
        "accelerator": rows["accelerator"].where(rows["accelerator"].notna(), "none"),
        "submitter": rows["submitter"],
        "question": question_keys(queries),
        "counted_in": tokens_per_unit(rows),
    }
    return Measurements.of(queries, _values(rows), groups)


def tokens_per_unit(rows: pd.DataFrame) -> Column:
    """Divisor that converts each row's result to samples, shape (n,); 1 for results in samples.

    Results of language models are in tokens since v4.1 (Llama 2 offline since v4.0), whatever unit
    the row states. Results whose `result_units` states tokens are in tokens in any round; the
    divisor is NaN if their model is not in `TOKENS_PER_SAMPLE`.
    """
    found = np.ones(len(rows))
    number = round_numbers(rows["round"])
    model = rows["model"].astype(str).to_numpy(dtype=np.str_)
    offline = (rows["scenario"] == "Offline").to_numpy()
    streams = (rows["result_units"] == LATENCY).to_numpy()
    in_tokens = rows["result_units"].isin(list(TOKENS)).to_numpy(dtype=np.bool_)
    for name, tokens in TOKENS_PER_SAMPLE.items():
        of_model = np.char.startswith(model, name)
        counted = (number >= 401) | ((number == 400) & offline & (name == "llama2-70b"))
        found[of_model & (counted | in_tokens) & ~streams] = tokens
    found[in_tokens & (found == 1.0)] = np.nan
    return found


def framework_family(text: Any) -> str:
    """`vendor` for software of the hardware vendor, else the name of the portable framework."""
    lower = str(text).lower()
    portable = next((word for word in PORTABLE if word in lower), "vendor")
    return "vendor" if any(word in lower for word in VENDORS) else portable


def gflop_per_sample(model: str) -> float:
    """Arithmetic per sample in 1e9 operations; NaN for a model that is not listed."""
    names = [name for name in GFLOP_PER_SAMPLE if model.startswith(name)]
    return GFLOP_PER_SAMPLE[max(names, key=len)] if names else float("nan")


def _query(row: Mapping[Any, Any], key: str, catalog: DeviceCatalog) -> Query:
    on_cpu = runs_on_cpu(row["accelerator"])
    per_node = row["cpus_per_node"] if on_cpu else row["accelerators_per_node"]
    per_node = max(1, int(per_node)) if per_node == per_node else 1
    nodes = _nodes(row)
    count = per_node * nodes
    choices = {
        "model": str(row["model"]),
        "scenario": str(row["scenario"]),
        "system_type": "edge" if row["system_type"] == "edge" else "datacenter",
        "framework": framework_family(row["framework"]),
        "reference": "yes" if _named(_REFERENCE, row) else "no",
        "power_mode": "efficient" if _named(_EFFICIENT, row) else "usual",
        "server": "triton" if _named(_TRITON, row) else "none",
        "submitter": str(row["submitter"]),
        "platform": str(row["platform"]),
        "part": str(row["cpu"] if on_cpu else row["accelerator"]),
    }
    numbers = {
        "round": float(round_numbers([row["round"]])[0]),
        "nodes": float(nodes),
        "share": share_in_use(row["accelerator"]),
        "host_cores": _cores(row),
        "gflop": gflop_per_sample(str(row["model"])),
        "power_measured": float(row["power_result"] == row["power_result"]),
    }
    settings: dict[str, float | str] = {n: v for n, v in numbers.items() if np.isfinite(v)}
    workload = Benchmark(SUITE, tuple(sorted({**settings, **choices}.items())))
    return Query(workload, accelerator(key, on_cpu, catalog), operation=Operation(count))


def _named(what: re.Pattern[str], row: Mapping[Any, Any]) -> bool:
    return any(what.search(str(row[name])) for name in ("system", "platform", "framework"))


def _nodes(row: Mapping[Any, Any]) -> int:
    """Number of nodes; some systems named `1-node-2S` list their two sockets as nodes."""
    named = _NAMED_NODES.match(str(row["platform"]))
    return int(named[1]) if named else max(1, int(row["nodes"]))


def _cores(row: Mapping[Any, Any]) -> float:
    """Number of cores of all CPUs of a node; NaN if the text has no number."""
    found = re.match(r"\s*(\d+)", str(row["cores_per_cpu"]))
    return float(found[1]) * float(row["cpus_per_node"]) if found else float("nan")


def _values(rows: pd.DataFrame) -> dict[str, Column]:
    result = rows["result"].to_numpy(dtype=np.float64)
    power = rows["power_result"].to_numpy(dtype=np.float64)
    streams = (rows["result_units"] == LATENCY).to_numpy()
    samples_per_s = np.where(streams, np.nan, result / tokens_per_unit(rows))
    multi = (rows["scenario"] == "MultiStream").to_numpy()
    per_sample = power / 1e3 / np.where(multi, SAMPLES_PER_QUERY, 1)
    return {
        "samples_per_s": samples_per_s,
        "latency_ms": np.where(streams, result, np.nan),
        "wall_power_w": np.where(streams, np.nan, power),
        "wall_energy_per_sample_j": np.where(streams, per_sample, power / samples_per_s),
    }


NEAREST_KEYS = ("scenario", "base", "device", "model", "part", "kind")


def earlier_rounds(train: Measurements, held_out: Measurements, metric: str) -> dict[str, Column]:
    """Baselines of n held-out rows: name -> predictions, shape (n,), NaN where there is none.

    `median` is the median of the same model, scenario and accelerator, scaled by the number of
    devices (latency and energy are not scaled). `median_as_reported` is the same without converting
    tokens to samples. `nearest` is the row that shares most keys, scaled in the same way.
    """
    scale = _scale(held_out, metric)
    values = train.values[metric] / _scale(train, metric)
    scaled = replace(train, values={"median": values})
    found = {"median": dp.median_by(scaled, held_out, "median", ("question",)) * scale}
    if metric == "samples_per_s":
        counted, held_out_counted = (
            rows.groups["counted_in"].astype(np.float64) for rows in (train, held_out)
        )
        scaled = replace(train, values={"median": values * counted})
        reported = dp.median_by(scaled, held_out, "median", ("question",))
        found["median_as_reported"] = reported * scale / held_out_counted
    measured = np.isfinite(values)
    found["nearest"] = _nearest(train.take(measured), held_out, values[measured]) * scale
    return found


def _nearest(train: Measurements, held_out: Measurements, values: Column) -> Column:
    if not len(train):
        return np.full(len(held_out), np.nan)
    asked, history = history_rows(held_out.queries), history_rows(train.queries)
    shared = np.zeros((len(held_out), len(train)))
    for weight, key in enumerate(NEAREST_KEYS[::-1], start=1):
        shared += weight * (asked.keys[key][:, None] == history.keys[key][None, :])
    scale_gap = np.abs(asked.numbers["scale"][:, None] - history.numbers["scale"][None, :])
    age = asked.numbers["time"][:, None] - history.numbers["time"][None, :]
    best = np.argmax(shared - 0.1 * scale_gap - 0.01 * np.abs(age), axis=1)
    return np.asarray(values[best])


def _scale(rows: Measurements, metric: str) -> Column:
    """Divisor that makes a metric comparable between systems: number of devices or 1, (n,)."""
    if metric not in ("samples_per_s", "wall_power_w"):
        return np.ones(len(rows))
    streams = np.array([is_stream(query) for query in rows.queries], dtype=np.bool_)
    return np.where(streams, 1.0, device_counts(rows.queries))


METRICS: Mapping[str, str] = {
    "latency": "latency_ms",
    "wall_power": "wall_power_w",
    "energy_per_sample": "wall_energy_per_sample_j",
}
"""Part of a task's name -> metric, for metrics other than throughput."""


class MlperfInferenceProtocols(dp.DatasetProtocols):
    """Later rounds, pooled over rounds, and accelerators held out in five folds."""

    dataset = "mlperf_inference"
    reads: ClassVar = {CLOSED: ASKED}

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, dp.Kept]:
        """All rows of the closed division."""
        return run_measurements(bundle.table(CLOSED), catalog), dp.EVERY

    def tasks(self, protocol: str, held_out: Measurements, train: dp.Trained) -> dp.Tasks:
        """Metrics of rows with and without a history in the training set."""
        assert train is not None, "without a training set, the record says what has a history"
        known = np.isin(held_out.groups["question"], train.groups["question"])
        metrics = ("samples_per_s", *METRICS.values())
        others = {metric: earlier_rounds(train, held_out, metric) for metric in metrics}
        return _split_tasks(protocol, held_out, known, others)

    def evaluation_tasks(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> dp.Tasks:
        """Rounds that are not in the training set, with and without a history in it."""
        rows = self.training_rows(bundle, catalog)
        rows = rows.take(~dp.is_seen(rows, "round", seen))
        yield from _split_tasks("later_rounds", rows, dp.is_seen(rows, "question", seen), {})

    def reasons(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> Mapping[str, Mask]:
        """Rounds in the training set, and results in tokens for models of unknown output length."""
        rows = self.training_rows(bundle, catalog)
        same = dp.is_seen(rows, "round", seen)
        unknown = "result_units are tokens, and how many a sample has is not known of that model"
        uncounted = ~same & (rows.groups["counted_in"] == "nan")
        return {"this round is in the training set": same, unknown: uncounted}


def _split_tasks(
    protocol: str,
    held_out: Measurements,
    known: Mask,
    others: Mapping[str, Mapping[str, Column]],
) -> dp.Tasks:
    on_cpu = held_out.groups["accelerator"] == "none"
    rate = "samples_per_s"
    parts = [("throughput", rate, ~on_cpu), ("throughput_cpu", rate, on_cpu)]
    parts += [(part, metric, on_cpu | ~on_cpu) for part, metric in METRICS.items()]
    for part, metric, in_part in parts:
        task = dp.Task("", metric, held_out, baselines=others.get(metric, {}))
        for name, has_history in ((part, known), (f"{part}_new", ~known)):
            rows = in_part & has_history & np.isfinite(held_out.values[metric])
            if rows.any():
                yield replace(task, name=f"{protocol}/{name}").take(rows)
