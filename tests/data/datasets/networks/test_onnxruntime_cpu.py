"""Our own measurements on a processor keep the dataset contract; crowded rows are excluded."""

import pandas as pd

from forerun.data.datasets.networks.onnxruntime_cpu import OnnxruntimeCpu
from forerun.data.measurement import crowded
from tests.contracts.dataset_contract import DatasetContract


class TestOnnxruntimeCpu(DatasetContract):
    cls = OnnxruntimeCpu


def collected():
    same = {"kind": "network", "precision": "fp32", "phase": "inference", "device": "my-cpu"}
    same |= {"framework": "onnxruntime", "framework_version": "1.31.1", "runtime": "onnxruntime"}
    same |= {"layout": "nchw", "repeats": 9, "spread": 0.02, "window_s": 1.0, "cpus": 2}
    same |= {"instruction_set": "avx512", "peak_memory_mib": 20.0, "fastest_ms": 1.9}
    rows = [
        same | {"label": f"n{i}", "workload": f"n{i}", "latency_ms": 2.0 + i, "batch_size": 1,
                "status": "ok", "threads": threads, "others_share": others}
        for i, (threads, others) in enumerate(((1, 0.0), (1, 0.5), (2, 0.1), (2, 0.8)))
    ]  # fmt: skip
    return pd.DataFrame(
        [
            *rows,
            {
                **rows[0],
                "status": "failed",
                "label": "bad",
                "latency_ms": None,
                "peak_memory_mib": None,
            },
        ]
    )


def test_rows_are_crowded_if_more_processors_are_requested_than_available():
    frame = collected()
    assert crowded(frame).tolist() == [False, False, False, True, False]
    assert not crowded(frame.drop(columns="cpus")).any()
