"""A few rows of `onnxruntime_cpu`, made up."""

from collections.abc import Mapping

import pandas as pd

from tests.contracts.tiny_published import packaged_files

NETWORKS = tuple(f"cpu-made-up-{letter}" for letter in "abcdefgh")


def onnxruntime_cpu() -> Mapping[str, bytes]:
    """Eight networks and an operator at one and two threads, as the collector's rows are packed."""
    rows = [
        _row("network", name, threads, 10.0 + place)
        for threads in (1, 2)
        for place, name in enumerate(NETWORKS)
    ]
    rows += [_row("kernel", "linear 1x8 to 8", threads, 0.5) for threads in (1, 2)]
    return packaged_files(runs=pd.DataFrame(rows))


def _row(kind: str, label: str, threads: int, latency_ms: float) -> dict[str, object]:
    return {
        "device": "some-cpu",
        "workload": f"digest of {label}",
        "label": label,
        "kind": kind,
        "framework_version": "1.31.1",
        "instruction_set": "avx2",
        "threads": threads,
        "batch_size": 1,
        "latency_ms": latency_ms / threads,
        "fastest_ms": 0.9 * latency_ms / threads,
        "peak_memory_mib": 30.0 if kind == "network" else None,
        "spread": 0.02,
        "others_share": 0.1,
    }
