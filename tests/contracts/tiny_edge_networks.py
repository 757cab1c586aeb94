"""A few made-up rows of ncnn's benchmark."""

from collections.abc import Mapping

import pandas as pd

from forerun.data.datasets.networks.edge_networks import EdgeNetworks
from tests.contracts.tiny_published import packaged_files

BOARD = "NVIDIA Jetson AGX Orin (made up)"
SERVER = "HUAWEI Kunpeng 920 7260 (made up)"


def edge_networks() -> Mapping[str, bytes]:
    """Two networks with one to four threads on two processors, and rows that take no part."""
    rows = [
        _row(device, network, threads, ms / threads**0.8)
        for device, factor in ((BOARD, 1.0), (SERVER, 2.0))
        for network, ms in (("resnet18", 30.0 * factor), ("resnet50", 90.0 * factor))
        for threads in (1, 2, 4)
    ]
    rows += [_row(BOARD, "resnet18", 2, 99.0, run=2), _row(BOARD, "resnet18", 1, 9.0, int8=True)]
    rows += [
        _row(BOARD, "resnet18", 1, 5.0, target="gpu"),
        _row(BOARD, "resnet18", 1, 8.0, powersave=1),
    ]
    rows += [_row("some phone", "resnet18", 4, 40.0), _row(BOARD, "unknown_net", 1, 7.0)]
    kinds = dict.fromkeys(("run", "gpu_device", "threads", "powersave", "loops"), "Int32")
    return packaged_files(ncnn=pd.DataFrame(rows).astype(kinds))


def _row(device: str, network: str, threads: int, ms: float, **other: object) -> dict[str, object]:
    said = {"device": device, "run": 1, "target": "cpu", "gpu_device": -1, "threads": threads}
    said |= {"powersave": 0, "loops": 8, "network": network, "int8": False}
    said |= {"min_ms": ms, "avg_ms": 1.1 * ms, "max_ms": 1.2 * ms, **other}
    return {name: said[name] for name in EdgeNetworks().tables()["ncnn"].columns}
