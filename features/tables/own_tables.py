"""Imported tables as queries: graphs from the bundle, or plain columns as benchmark settings."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.columns import Column
from forerun.data.datasets.imported import DEVICES, FINDINGS, GRAPHS, RUNS, model_groups
from forerun.data.device import Device
from forerun.data.errors import BadTable, InputError
from forerun.data.graph import OperatorGraph
from forerun.data.lazy import pd
from forerun.data.measurements import Measurements
from forerun.data.own_tables.tidy import GROUPS, Description, Hardware, text_keys
from forerun.data.quality import row_weights
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Benchmark, Kernel, Network, OperatorWorkload
from forerun.features.operators.features import SHORTEST_KERNEL_MS
from forerun.features.operators.query_table import query_table
from forerun.features.operators.roofline import roofline_ms
from forerun.features.readers.operator_json import graph_of
from forerun.features.tables.torch_gpu import measured_operator

NO_DEVICE = "not-given"
"""Device name for rows that give none."""
OF_DEVICE = "device "
"""Prefix of settings that are figures of a device's spec sheet."""
_SOFTWARE = {
    **{name: name for name in ("framework", "runtime", "layout", "cuda", "driver", "threads")},
    "framework_version": "version",
}


def own_measurements(bundle: Bundle, description: Description) -> Measurements:
    """All rows of an imported table with their metrics, groups and weights.

    Groups: `device`, `model_group` and, where given, `model` and `family`; `question`, which is the
    same for equal queries.

    Raises:
        BadTable: a graph of the bundle cannot be read.
    """
    runs = bundle.table(RUNS)
    sheets = {n: Device.model_validate(s) for n, s in bundle.document(DEVICES).items()}
    graphs = read_graphs(bundle.table(GRAPHS)) if bundle.has(GRAPHS) else {}
    queries = own_queries(runs, description, sheets, graphs)
    groups = {name: text_keys(runs, [name]) for name in GROUPS if name in runs}
    groups = {name: values for name, values in groups.items() if (values != "").all()}
    groups["model_group"] = model_groups(runs)
    groups["question"] = text_keys(runs, description.question_columns)
    values = {name: runs[name].to_numpy(dtype=np.float64) for name in description.metrics}
    weights = row_weights(bundle.table(FINDINGS), len(runs))
    return Measurements(queries, values, groups, weights)


def read_graphs(table: "pd.DataFrame") -> dict[str, OperatorGraph]:
    """Digest -> graph of the table `graphs`.

    Raises:
        BadTable: one cannot be read.
    """
    try:
        return {
            str(digest): graph_of(json.loads(text))
            for digest, text in zip(table["digest"], table["graph"], strict=True)
        }
    except (InputError, ValueError) as error:
        raise BadTable(f"A graph of the table cannot be read: {error}") from error


def own_queries(
    runs: "pd.DataFrame",
    description: Description,
    sheets: Mapping[str, Device],
    graphs: Mapping[str, OperatorGraph],
) -> list[Query]:
    """The query of each row.

    Args:
        runs: rows of the table `runs`.
        description: what the columns mean.
        sheets: device name -> spec sheet.
        graphs: digest -> graph.
    """
    cells = runs.astype(object).where(runs.notna(), None).to_dict("records")
    rows = [{str(name): value for name, value in row.items()} for row in cells]
    if description.layout == "networks":
        return [_network_query(row, sheets[row["device"]], graphs) for row in rows]
    no_device = Device(name=NO_DEVICE, vendor="unknown", kind="cpu")
    return [_settings_query(row, description, sheets.get(row["device"], no_device)) for row in rows]


def _network_query(
    row: Mapping[str, Any], device: Device, graphs: Mapping[str, OperatorGraph]
) -> Query:
    named = {field: row[name] for name, field in _SOFTWARE.items() if row.get(name) is not None}
    precision: Any = row.get("precision") or "fp32"
    run: OperatorWorkload
    if str(row["workload"]).startswith("{"):
        run = Kernel(measured_operator(str(row["workload"])), precision)
    else:
        graph = graphs[row["workload"]]
        phase: Any = row.get("phase") or "inference"
        batch_size = int(row.get("batch_size") or graph.batch_size)
        run = Network(graph, batch_size, precision, phase)
    return Query(run, device, Software.model_validate(named))


def _settings_query(row: Mapping[str, Any], description: Description, device: Device) -> Query:
    settings: dict[str, float | str] = {
        name: row[name] if isinstance(row[name], str) else float(row[name])
        for name in (*description.settings, "model")
        if row.get(name) not in (None, "")
    }
    settings |= device_settings(device)
    return Query(Benchmark(description.name, tuple(sorted(settings.items()))), device)


def device_settings(device: Device) -> dict[str, float]:
    """Figures of a device's sheet as settings; empty without a sheet."""
    if not device.has_sheet:
        return {}
    peaks = device.peak_tflops
    figures = {
        "memory_bandwidth_gbs": device.memory_bandwidth_gbs,
        "fp32_tflops": peaks.get("fp32"),
        "fp16_tflops": peaks.get("fp16"),
        "tdp_w": device.tdp_w,
    }
    return {OF_DEVICE + name: float(own) for name, own in figures.items() if own is not None}


def hardware_of(queries: list[Query]) -> Hardware:
    """Capabilities of the devices of n queries, for the ingestion checks."""
    bounds, powers, memory = [], [], []
    for query in queries:
        shortest = SHORTEST_KERNEL_MS if query.device.kind == "gpu" else 0.0
        bounds.append(max(bound_ms(query) if query.has_bound else 0.0, shortest))
        powers.append(query.device.tdp_w or np.nan)
        memory.append(1024.0 * (query.device.memory_gib or np.nan))
    return Hardware(_column(bounds), _column(powers), _column(memory))


def bound_ms(query: Query) -> float:
    """Roofline bound of an operator or network on a device with a spec sheet, ms.

    Raises:
        UnknownPrecision: the sheet has no peak for the query's precision.
    """
    table, run = query_table(query.run), query.run
    torch = query.software.framework == "torch"
    return float((roofline_ms(table, query.device, run.precision, torch) * table.repeat).sum())


def _column(values: list[float]) -> Column:
    return np.array(values, dtype=np.float64)
