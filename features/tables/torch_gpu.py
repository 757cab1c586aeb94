"""Tables of recorded runs as queries: `torch_gpu` and `onnxruntime_cpu`.

Operators are read from their columns; networks from stored graphs, or rebuilt.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from forerun.data.collectors.system.host import BUSY_SHARE
from forerun.data.collectors.workloads.onnx_networks import NETWORKS
from forerun.data.datasets.networks.torch_gpu import execution_modes, families
from forerun.data.device import Device, DeviceCatalog
from forerun.data.errors import BadTable
from forerun.data.graph import FORMAT, Operator, OperatorGraph
from forerun.data.lazy import pd
from forerun.data.measurements import Measurements
from forerun.data.quality import noise_weights
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import InferenceSetup, Kernel, Network, OperatorWorkload
from forerun.features.readers import read_graph
from forerun.features.readers.operator_json import graph_of, parse_json

WHOLE_OUTPUT = InferenceSetup(logits="all", cache_tokens=0)
"""How networks were run: language models compute logits at all positions and keep no cache."""
MEMORY = ("allocated_memory_mib", "reserved_memory_mib", "peak_memory_mib")


def gpu_measurements(
    runs: "pd.DataFrame", graphs: Mapping[str, OperatorGraph], catalog: DeviceCatalog
) -> Measurements:
    """Time, memory and power of n rows of `runs`.

    `latency_ms` of an operator is its GPU time (`kernel_ms`), and `launched_ms` that of one
    synchronised run including its launch. Networks recorded as CUDA graphs are queried as eager
    ones, from which they differ only in host time.

    Args:
        runs: the table `runs`.
        graphs: network name -> graph, as in the table `graphs`.
        catalog: spec sheets of devices.

    Returns:
        n rows with the groups `device`, `model`, `family`, `mode`, `precision`, `phase` and
        `fp32_convolutions` (`strict` without TF32, `tf32` as PyTorch does by default).

    Raises:
        BadTable: a network has no graph, or a graph other than the measured one.
        UnknownDevice: a GPU is not in the catalogue.
    """
    queries = [_query(row, graphs, catalog) for row in runs.to_dict("records")]
    operators = (runs["kind"] == "kernel").to_numpy(dtype=np.bool_)
    measured = {n: runs[n].to_numpy(dtype=np.float64) for n in ("latency_ms", "power_w", *MEMORY)}
    kernel_ms = runs["kernel_ms"].to_numpy(dtype=np.float64)
    measured["launched_ms"] = measured["latency_ms"]
    measured["latency_ms"] = np.where(operators, kernel_ms, measured["latency_ms"])
    groups = {
        "device": runs["device"],
        "model": runs["label"],
        "family": families(runs),
        "mode": execution_modes(runs),
        "precision": runs["precision"],
        "fp32_convolutions": runs["fp32_convolutions"],
        "phase": runs["phase"].fillna("inference"),
    }
    texts = {name: np.asarray(values, dtype=np.str_) for name, values in groups.items()}
    weights = noise_weights(np.nan_to_num(runs["spread"].to_numpy(dtype=np.float64)))
    return Measurements(queries, measured, texts, weights)


def _query(
    row: Mapping[Any, Any], graphs: Mapping[str, OperatorGraph], catalog: DeviceCatalog
) -> Query:
    run: OperatorWorkload
    if row["kind"] == "kernel":
        run = Kernel(measured_operator(row["workload"]), row["precision"])
    else:
        graph = graphs.get(row["label"])
        if graph is None or graph.digest != row["workload"]:
            raise BadTable(f"The graph of {row['label']} is missing, or not the one measured.")
        setup = WHOLE_OUTPUT if row["phase"] == "inference" else None
        size = int(row["batch_size"])
        run = Network(graph, size, row["precision"], row["phase"], inference=setup)
    software = Software(
        version=row["framework_version"],
        runtime=row["runtime"],
        cuda=row["cuda"],
        driver=row["driver"],
    )
    return Query(run, catalog.get(row["device"]), software)


def processor_measurements(runs: "pd.DataFrame") -> Measurements:
    """Latency and memory of every row.

    Raises:
        BadTable: a network cannot be built here, or was built differently.
    """
    queries = []
    for row in runs.itertuples():
        name = str(row.device)
        device = Device(name=name, title=name, vendor="unknown", kind="cpu")
        software = Software(
            framework="onnxruntime",
            version=str(row.framework_version),
            runtime="onnxruntime",
            threads=int(str(row.threads)),
        )
        if row.kind == "kernel":
            queries.append(Query(Kernel(measured_operator(str(row.workload))), device, software))
            continue
        graph = built_graph(str(row.label))
        if graph.digest != row.workload:
            raise BadTable(f"{row.label} was measured as another network than is built here.")
        queries.append(Query(Network(graph, int(str(row.batch_size))), device, software))
    others = np.nan_to_num(runs["others_share"].to_numpy(dtype=np.float64))
    # On a busy machine the fastest run is closest to the time on an idle one.
    typical = np.where(others > BUSY_SHARE, runs["fastest_ms"], runs["latency_ms"])
    values = {
        "latency_ms": typical.astype(np.float64),
        "peak_memory_mib": runs["peak_memory_mib"].to_numpy(dtype=np.float64),
    }
    groups = {
        "device": runs["device"].to_numpy().astype(np.str_),
        "model": runs["label"].to_numpy().astype(np.str_),
    }
    weights = noise_weights(np.maximum(runs["spread"].to_numpy(dtype=np.float64), others))
    return Measurements(queries, values, groups, weights)


def measured_operator(text: str) -> Operator:
    """The operator in a cell of column `workload`.

    Raises:
        UnreadableModel: the cell holds no operator.
    """
    row = {"inputs": [], **parse_json(text.encode(), "a measured operator")}
    return graph_of({"format": FORMAT, "operators": [row]}).operators[0]


@lru_cache(maxsize=128)
def built_graph(name: str) -> OperatorGraph:
    """The graph of a network built for CPUs.

    Raises:
        BadTable: no network has this name.
    """
    if name not in NETWORKS:
        raise BadTable(f"No network {name!r} is built here.")
    return read_graph(NETWORKS[name].build())
