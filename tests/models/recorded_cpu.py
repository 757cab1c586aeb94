"""A two-minute collection on one processor, and published networks measured there afterwards.

`recorded/own_cpu.csv` holds the rows of one `forerun collect cpu --quick` at one thread and nine
networks that come with the onnx package, none of which any training row holds.
"""

from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pandas as pd

from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.data.quality import noise_weights
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Kernel, Network
from forerun.features.readers import read_graph
from forerun.features.tables.torch_gpu import built_graph, measured_operator

TABLE = Path(__file__).parent / "recorded/own_cpu.csv"
PUBLISHED = Path(onnx.__file__).parent / "backend/test/data/light"
OWN = Device(name="own-cpu", vendor="unknown", kind="cpu")


@cache
def published_graph(name: str):
    return read_graph(PUBLISHED / f"{name}.onnx")


def recorded(role: str, device: Device = OWN) -> Measurements:
    """`quick` rows, or the `held_out` ones."""
    rows = pd.read_csv(TABLE)
    rows = rows[rows["role"] == role]
    queries = []
    for row in rows.itertuples():
        software = Software(runtime="onnxruntime", threads=int(row.threads))
        if row.kind == "kernel":
            workload = Kernel(measured_operator(row.workload))
        else:
            graph = built_graph(row.label) if role == "quick" else published_graph(row.label)
            workload = Network(graph, int(row.batch_size))
        queries.append(Query(workload, device, software))
    values = {name: rows[name].to_numpy(float) for name in ("latency_ms", "peak_memory_mib")}
    weights = noise_weights(rows["spread"].to_numpy(float))
    groups = {"model": rows["label"].to_numpy().astype(np.str_)}
    return Measurements(queries, values, groups, weights)
