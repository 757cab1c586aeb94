"""Runs of ncnn's benchmark as queries."""

import numpy as np

from forerun.data.datasets.networks.edge_networks import EdgeNetworks
from forerun.data.device import Device
from forerun.data.lazy import pd
from forerun.data.measurements import Measurements
from forerun.data.named.networks import network_named
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Network

WEIGHT = 0.1
"""Of a row against one of our own, since contributors' runs scatter by some 10 %."""


def ncnn_measurements(rows: "pd.DataFrame") -> Measurements:
    """Milliseconds of n rows of `ncnn`, in fp32 at batch size 1.

    ncnn runs the same nodes as ONNX Runtime does, with other kernels, so the queries name that
    runtime.
    """
    names = EdgeNetworks.facts["networks"]
    graphs = {key: graph for key in names if (graph := network_named(names[key])) is not None}
    written = EdgeNetworks.facts["of_one_kind"]
    own = rows["device"].map(lambda text: next(n for n in written if text.startswith(written[n])))
    devices = {n: Device(name=n, title=n, vendor="unknown", kind="cpu") for n in written}
    queries = [
        Query(
            Network(graphs[network], 1),
            devices[device],
            Software(framework="ncnn", runtime="onnxruntime", threads=int(threads)),
        )
        for device, network, threads in zip(own, rows["network"], rows["threads"], strict=True)
    ]
    groups = {"device": own, "model": rows["network"], "threads": rows["threads"]}
    texts = {name: np.asarray(values, dtype=np.str_) for name, values in groups.items()}
    values = {"latency_ms": rows["min_ms"].to_numpy(dtype=np.float64)}
    return Measurements(queries, values, texts, np.full(len(rows), WEIGHT))
