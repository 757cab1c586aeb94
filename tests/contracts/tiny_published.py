"""Made-up rows of published tables: two families on two chips, and rows that take no part."""

import json
from collections.abc import Iterable
from typing import Any

import pandas as pd

from forerun.data.graph import Operator, OperatorGraph

TEXTS = {
    **{"kind": "framework", "framework": "pytorch", "runtime": "native", "xla": None},
    **{"scenario": None, "model": "ResNet50-v1.5", "variant": None, "device": "a100-sxm-80gb"},
    **{"device_guess": "a100-sxm-80gb", "gpu": "a100-sxm-80gb", "gpu_as_written": "DGX A100"},
    **{"phase": "inference", "precision": "amp", "sequence_or_image": None},
    **{"throughput_unit": "img/s", "container": "pytorch-21.03", "table_label": None},
    **{"batch_source": "table", "source_repo": "a/b", "source_path": "README.md"},
    **{"source_commit": "0" * 40, "source_section": "Results", "note": None, "consistency": "ok"},
}
NUMBERS = {
    **{"gpu_count": 1.0, "nodes": None, "batch_size_per_gpu": 8.0, "micro_batch_per_gpu": 8.0},
    **{"concurrency": None, "throughput": 1000.0, "latency_avg_ms": 9.0, "latency_p50_ms": None},
    **{"latency_p90_ms": None, "latency_p95_ms": None, "latency_p99_ms": None},
    **{"latency_p100_ms": None, "server_compute_infer_ms": None, "consistency_ratio": None},
    "source_line": 1.0,
}
V100 = {"device": "v100-sxm2-16gb", "device_guess": "v100-sxm2-16gb", "gpu": "v100-sxm-16gb"}
NAMES = ("resnet50-224", "efficientnet_b0-224", "bert_large_pretraining-128-eager")


def published_table(*rows: dict[str, Any]) -> pd.DataFrame:
    """A `table` of these rows; what a row does not say is a usual A100 row of ResNet-50."""
    frame = pd.DataFrame([{**TEXTS, **NUMBERS, **row} for row in rows])
    frame["source_line"] = [float(line + 1) for line in range(len(frame))]
    texts = dict.fromkeys(TEXTS, "str")
    return frame.astype(dict.fromkeys(NUMBERS, "float64") | texts)


def published_rows() -> pd.DataFrame:
    """Two families on two chips at two batch sizes, and one row for some reasons to leave out."""
    rows: list[dict[str, Any]] = []
    for model in ("ResNet50-v1.5", "EfficientNet-B0"):
        for gpu in ({}, V100):
            for batch in (1.0, 64.0):
                sizes = {"batch_size_per_gpu": batch, "micro_batch_per_gpu": batch}
                rows.append({"model": model, **gpu, **sizes, "throughput": 100.0 * batch})
    rows.append({"kind": "served", "scenario": "triton-offline", "throughput": 7.0})
    rows.append({"framework": "tensorflow2", "throughput": 8.0})
    rows.append({**rows[0]})
    return published_table(*rows)


def published_graphs() -> pd.DataFrame:
    """A `graphs` table of one convolution under the names of three real networks."""
    convolution = Operator(
        "conv",
        "aten.conv2d",
        ((1, 3, 224, 224),),
        ((1, 64, 112, 112),),
        9408,
        {"kernel": (7, 7), "stride": (2, 2), "padding": (3, 3), "groups": 1},
    )
    return named_graphs(NAMES, OperatorGraph((convolution,), parameter_elements=9408))


def named_graphs(names: Iterable[str], graph: OperatorGraph) -> pd.DataFrame:
    """A `graphs` table of one graph under several names."""
    rows = [{"graph": n, "configuration": "made up", "operators": 1} for n in names]
    return pd.DataFrame(rows).assign(content=json.dumps(graph.to_json(), sort_keys=True))


def published_networks() -> dict[str, bytes]:
    """The files of the package."""
    return packaged_files(table=published_rows(), graphs=published_graphs())


def packaged_files(**tables: pd.DataFrame) -> dict[str, bytes]:
    """The files of a package with these tables."""
    return {f"{name}.parquet": frame.to_parquet(index=False) for name, frame in tables.items()}


def filled_table(dataset: Any, usual: dict[str, Any], rows: Iterable[dict[str, Any]]) -> Any:
    """A `table` of a dataset of these rows; what a row does not say is as usual."""
    columns = dataset.tables()["table"].columns
    said = [{**usual, "row_id": f"T{place}", **row} for place, row in enumerate(rows)]
    types = {n: "str" if own.dtype is None else str(own.dtype) for n, own in columns.items()}
    return pd.DataFrame(said).reindex(columns=list(columns)).astype(types)
