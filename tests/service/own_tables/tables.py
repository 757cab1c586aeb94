"""Small tables such as users bring, with times from a law and some noise."""

import numpy as np

from forerun.data.collectors.workloads.onnx_networks import NETWORKS
from forerun.data.device import DeviceCatalog
from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.features.readers import read_graph
from forerun.features.tables.own_tables import bound_ms

GPUS = {"L4": 1.0, "T4": 2.0, "NVIDIA A30": 0.5}


def settings_table(folder, gpus=GPUS):
    """A CSV of plain columns: a GPU, a number, a batch and a word describe each row."""
    random = np.random.default_rng(0)
    lines = ["gpu,channels,Batch,kernel,time_us,peak memory (GiB)"]
    for gpu, factor in gpus.items():
        for channels in (16, 32, 64):
            for batch in (1, 8, 64):
                for kernel in ("direct", "winograd"):
                    work = 50 + batch * channels**1.2 * (2 if kernel == "direct" else 1)
                    time_us = factor * work * random.lognormal(0, 0.03)
                    memory = 0.5 + batch * channels * 1e-3
                    lines.append(f"{gpu},{channels},{batch},{kernel},{time_us:.2f},{memory:.4f}")
    file = folder / "table.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


def networks_table(folder, networks=4):
    """A CSV whose rows name ONNX files next to it, at two batch sizes on two GPUs."""
    random = np.random.default_rng(0)
    catalog = DeviceCatalog.load()
    (folder / "models").mkdir()
    lines = ["model_file,device,bs,dtype,latency_ms"]
    for name in list(NETWORKS)[:networks]:
        content = NETWORKS[name].build()
        (folder / "models" / f"{name}.onnx").write_bytes(content)
        graph = read_graph(content)
        for gpu, factor in (("l4", 1.5), ("t4", 2.0)):
            for batch in (1, 8):
                query = Query(Network(graph, batch, "fp16"), catalog.get(gpu))
                time_ms = factor * bound_ms(query) + 0.005 * len(graph)
                time_ms *= random.lognormal(0, 0.03)
                lines.append(f"models/{name}.onnx,{gpu},{batch},float16,{time_ms:.5f}")
    file = folder / "networks.csv"
    file.write_text("\n".join(lines) + "\n")
    return file
