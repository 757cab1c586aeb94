"""A few rows of `torch_gpu`, made up."""

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd

from forerun.data.datasets.networks.torch_gpu import NUMBERS, TorchGpu
from forerun.data.graph import Operator, OperatorGraph
from tests.contracts.tiny_published import packaged_files

GPUS = ("h100-sxm-80gb", "h200-sxm-141gb")
LINEAR = {
    **{"kind": "linear", "name": "linear 64x1024 to 1024", "parameter_elements": 1048576},
    **{"input_shapes": [[64, 1024]], "output_shapes": [[64, 1024]]},
}
WEIGHTED = Operator("linear", "aten.linear", ((1, 512),), ((1, 512),), 262144)
GRAPH = OperatorGraph((WEIGHTED, WEIGHTED), parameter_elements=524288)


def gpu_rows() -> pd.DataFrame:
    """An operator, an eager network in both phases and a recorded one, each on two GPUs."""
    rows: list[dict[str, Any]] = []
    for place, device in enumerate(GPUS):
        faster = 1.0 / (1 + place)
        own = {"device": device, "latency_ms": 2.0 * faster, "fastest_ms": 1.9 * faster}
        network = {**own, "kind": "network", "label": "tiny-16", "workload": GRAPH.digest}
        network |= {"batch_size": 8.0, "power_w": 350.0 * (1 + place)}
        operator = {**own, "kind": "kernel", "label": LINEAR["name"]}
        operator |= {"workload": json.dumps(LINEAR), "kernel_ms": 0.01 * faster}
        rows += [
            {**operator, "precision": "bf16"},
            {**network, "precision": "tf32", "phase": "inference"},
            {**network, "precision": "tf32", "phase": "training"},
            {**network, "precision": "tf32", "phase": "inference", "cuda_graph": True},
            {**network, "precision": "fp32", "phase": "training", "status": "oom"},
        ]
    return gpu_table(*rows)


def gpu_table(*rows: dict[str, Any]) -> pd.DataFrame:
    """A table `runs` of these rows; what a row does not say is usual or null."""
    usual = {
        **{"runtime": "eager", "cuda_graph": False, "status": "ok", "spread": 0.02},
        **{"fp32_convolutions": "strict"},
        **{"framework_version": "2.11.0", "cuda": "13.0", "driver": "580.1"},
        **{"allocated_memory_mib": 10.0, "reserved_memory_mib": 20.0, "peak_memory_mib": 500.0},
    }
    frame = pd.DataFrame([{**usual, **row} for row in rows]).reindex(columns=TorchGpu.columns)
    return frame.astype(dict.fromkeys(NUMBERS, "float64"))


def gpu_graphs() -> pd.DataFrame:
    """The table `graphs` of the only network."""
    content = json.dumps(GRAPH.to_json(), sort_keys=True)
    row = {"graph": "tiny-16", "digest": GRAPH.digest, "content": content}
    return pd.DataFrame([{**row, "operators": len(GRAPH)}])


def torch_gpu() -> Mapping[str, bytes]:
    """Both tables as the package holds them."""
    return packaged_files(runs=gpu_rows(), graphs=gpu_graphs())
