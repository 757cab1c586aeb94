"""The table of `torch_gpu` as queries: operators from their columns, networks from their graphs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun.data.datasets.networks.torch_gpu import execution_modes, families
from forerun.data.device import DeviceCatalog
from forerun.data.errors import BadTable
from forerun.data.graph import OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.quality import noise_weights
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import InferenceSetup, Kernel, Network, OperatorWorkload
from forerun.features.tables.onnxruntime_cpu import measured_operator

if TYPE_CHECKING:
    import pandas as pd

WHOLE_OUTPUT = InferenceSetup(logits="all", cache_tokens=0)
"""How networks were run: language models compute logits of all positions and keep no cache."""
MEMORY = ("allocated_memory_mib", "reserved_memory_mib", "peak_memory_mib")


def gpu_measurements(
    runs: "pd.DataFrame", graphs: Mapping[str, OperatorGraph], catalog: DeviceCatalog
) -> Measurements:
    """Time, memory and power of n rows of `runs`.

    `latency_ms` of an operator is the time of the GPU (`kernel_ms`), and `launched_ms` that of one
    synchronised run with its launch. Recorded networks are asked as eager ones, which they are but
    for the host.

    Args:
        runs: the table `runs`.
        graphs: name of a network -> its graph, as in the table `graphs`.
        catalog: spec sheets of devices.

    Returns:
        n rows with the groups `device`, `model`, `family`, `mode`, `precision`, `phase` and
        `fp32_convolutions` (`strict` without TF32, `tf32` as PyTorch does by default).

    Raises:
        BadTable: a network has no graph, or another one than was measured.
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
