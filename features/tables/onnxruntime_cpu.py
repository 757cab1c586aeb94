"""The table of `onnxruntime_cpu` as queries: operators from their columns, networks rebuilt."""

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from forerun.data.collectors.system.host import BUSY_SHARE
from forerun.data.collectors.workloads.onnx_networks import NETWORKS
from forerun.data.device import Device
from forerun.data.errors import BadTable
from forerun.data.graph import FORMAT, Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.quality import noise_weights
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Kernel, Network
from forerun.features.readers import read_graph
from forerun.features.readers.operator_json import graph_of, parse_json

if TYPE_CHECKING:
    import pandas as pd


def processor_measurements(runs: "pd.DataFrame") -> Measurements:
    """Latency and memory of every row.

    Raises:
        BadTable: a network is not one of those built here, or was built differently.
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
    # On a busy machine the fastest run is nearest to the time on an idle one.
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
        UnreadableModel: it is none.
    """
    row = {"inputs": [], **parse_json(text.encode(), "a measured operator")}
    return graph_of({"format": FORMAT, "operators": [row]}).operators[0]


@lru_cache(maxsize=128)
def built_graph(name: str) -> OperatorGraph:
    """The graph of one of the networks that are built for processors.

    Raises:
        BadTable: there is none of that name.
    """
    if name not in NETWORKS:
        raise BadTable(f"No network {name!r} is built here.")
    return read_graph(NETWORKS[name].build())
