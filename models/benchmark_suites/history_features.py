"""Benchmarks of systems as rows of the additive process: categorical keys, and numbers."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from forerun.data.columns import Column, Mask, Names
from forerun.data.device import Device
from forerun.data.query import Query
from forerun.models.domain.feature_range import sheet
from forerun.models.gaussian_process.additive_categorical import KeyedRows, Term

STREAMS: Final = ("SingleStream", "MultiStream")
"""Scenarios that run one query at a time and measure its latency."""
KEYS: Final = (
    *("model", "base", "scenario", "framework", "power_mode", "system_type", "submitter"),
    *("platform", "part", "device", "kind", "power", "server"),
    *("reference", "stack"),
)
FIRST_ROUND: Final = 200.0
"""Number of round v2.0, which a query without a round takes."""
USUAL_GFLOP: Final = 500.0
"""Arithmetic per sample, in GFLOP, that counts as 0 in the number `work`."""
USUAL_COUNT: Final = 1.4
"""Logarithm of four devices, which counts as 0 in the number `scale`."""

SPEED: Final = (
    Term((), "one", 3.0),
    Term((), "linear", 0.3),
    Term((), "near", 0.5),
    Term((), "scale", 0.05),
    Term((), "host", 0.05),
    Term(("kind",), "one", 1.0),
    Term(("base",), "one", 0.7),
    Term(("model",), "one", 0.3),
    Term(("scenario",), "one", 0.5),
    Term(("scenario", "base"), "one", 0.5),
    Term(("scenario", "model"), "one", 0.2),
    Term(("scenario",), "near", 0.2),
    Term(("scenario",), "host", 0.1),
    Term(("base",), "linear", 0.2),
    Term(("base",), "near", 0.3),
    Term(("base", "scenario"), "near", 0.2),
    Term(("base",), "host", 0.1),
    Term(("device",), "one", 0.5),
    Term(("part",), "one", 0.3),
    Term(("device", "scenario"), "one", 0.2),
    Term(("device", "base"), "one", 0.3),
    Term(("device", "base", "scenario"), "one", 0.2),
    Term(("device", "model", "scenario"), "one", 0.2),
    Term(("device", "model", "scenario"), "recent", 0.1),
    Term(("device", "base"), "recent", 0.1),
    Term(("device", "base"), "scale", 0.05),
    Term(("device", "base", "scenario"), "scale", 0.05),
    Term(("part", "model", "scenario"), "one", 0.1),
    Term(("stack",), "one", 1.0),
    Term(("stack", "kind"), "one", 0.5),
    Term(("reference",), "one", 0.5),
    Term(("reference", "device"), "one", 0.5),
    Term(("reference", "framework"), "one", 0.5),
    Term(("framework",), "one", 0.3),
    Term(("framework", "base"), "one", 0.3),
    Term(("framework", "device"), "one", 0.3),
    Term(("framework", "device", "base"), "one", 0.2),
    Term(("server",), "one", 0.1),
    Term(("server", "base", "scenario"), "one", 0.2),
    Term(("power_mode",), "one", 0.2),
    Term(("power_mode", "device"), "one", 0.2),
    Term(("power_mode", "device", "model", "scenario"), "one", 0.1),
    Term(("power", "device"), "one", 0.05),
    Term(("submitter",), "one", 0.05),
    Term(("submitter", "device"), "one", 0.1),
    Term(("submitter", "device", "model", "scenario"), "one", 0.1),
    Term(("platform",), "one", 0.1),
    Term(("platform", "model", "scenario"), "one", 0.1),
    Term(("system_type", "model", "scenario"), "one", 0.05),
)
"""Covariance terms of the logarithm of samples per second and device."""

STREAM: Final = (
    Term((), "one", 1.5),
    Term((), "linear", 0.3),
    Term((), "near", 0.3),
    Term((), "work", 0.3),
    Term(("kind",), "one", 0.5),
    Term(("scenario",), "one", 0.5),
    Term(("base",), "one", 0.5),
    Term(("scenario", "base"), "one", 0.3),
    Term(("model",), "one", 0.2),
    Term(("base",), "linear", 0.1),
    Term(("base",), "near", 0.2),
    Term(("stack",), "one", 0.5),
    Term(("framework",), "one", 0.3),
    Term(("reference",), "one", 0.3),
    Term(("power_mode",), "one", 0.1),
    Term(("power_mode", "device"), "one", 0.1),
    Term(("device",), "one", 0.4),
    Term(("part",), "one", 0.2),
    Term(("device", "scenario"), "one", 0.1),
    Term(("device", "base"), "one", 0.3),
    Term(("device", "model", "scenario"), "one", 0.2),
    Term(("device", "model", "scenario"), "recent", 0.1),
    Term(("framework", "device", "base"), "one", 0.2),
    Term(("submitter", "device"), "one", 0.1),
    Term(("platform",), "one", 0.1),
    Term(("platform", "model", "scenario"), "one", 0.1),
)
"""Covariance terms of the log queries per second of a stream, less log samples per second of one
device."""

WALL_POWER: Final = (
    Term((), "one", 2.0),
    Term((), "linear", 0.3),
    Term((), "near", 0.3),
    Term((), "scale", 0.3),
    Term((), "host", 0.2),
    Term(("kind",), "one", 0.5),
    Term(("base",), "one", 0.2),
    Term(("scenario",), "one", 0.2),
    Term(("scenario", "base"), "one", 0.1),
    Term(("base",), "near", 0.1),
    Term(("device",), "one", 0.4),
    Term(("device",), "scale", 0.2),
    Term(("device", "scenario"), "one", 0.2),
    Term(("device", "base"), "one", 0.1),
    Term(("power_mode",), "one", 0.2),
    Term(("power_mode", "device"), "one", 0.2),
    Term(("framework",), "one", 0.2),
    Term(("submitter", "device"), "one", 0.2),
    Term(("platform",), "one", 0.2),
    Term(("platform", "model"), "one", 0.05),
    Term(("platform", "model", "scenario"), "one", 0.05),
)
"""Covariance terms of the logarithm of watts at the wall per device."""


def history_rows(queries: Sequence[Query]) -> KeyedRows:
    """Keys and numbers of n benchmarks; a key that a query lacks is empty and equals no other."""
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
    """Years since v2.0 of rounds numbered 100 x major + minor, of which there are two a year."""
    return rounds // 100 - 2.0 + rounds % 100 / 2.0


def device_counts(queries: Sequence[Query]) -> Column:
    """Number of devices of each query, shape (n,); a slice of a device counts as a fraction."""
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
    """Identity of a device: the figures of its spec sheet, or its name if it has no sheet."""
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
