"""torch_gpu: the released predictors on two GPUs that this project measured; nothing is fitted.

The predictors were trained on other datasets. They know both GPUs' spec sheets, but have no latency
of networks from them; `forerun.models.llm_kernels` was fitted on other operators of both.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.columns import Column, Mask
from forerun.data.datasets.networks.torch_gpu import TorchGpu
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.features.published.zoo import read_graphs
from forerun.features.tables.torch_gpu import MEMORY, gpu_measurements
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Task, counted

CONSTANT_SHARE: Final = 0.9
"""Share of the design power that the baseline `constant_share` predicts for every run."""
METRICS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "operators": ("latency_ms", "power_w"),
        "eager": ("latency_ms", "power_w", *MEMORY),
        "recorded": ("latency_ms",),
    }
)
"""Execution mode -> metrics that are scored. Memory and power of recorded networks are not: no
query says that the launches of an eager network were recorded."""


class TorchGpuProtocols(DatasetProtocols):
    """Operators, eager networks, and recorded networks as the device's own time; by GPU."""

    dataset = "torch_gpu"
    zero_shot = True

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """None: every row is evaluated."""
        return Measurements([], {"latency_ms": np.empty(0)}, {})

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """None: nothing is fitted."""
        yield from ()

    def evaluation_tasks(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Iterator[Task]:
        """One task for each execution mode, metric, phase and GPU.

        The baseline `other_devices` is the median of the same task on the other GPUs.
        """
        rows = _measured(bundle, catalog)
        for mode, metrics in METRICS.items():
            for metric in metrics:
                for phase in ("inference", "training"):
                    alike = (rows.groups["mode"] == mode) & (rows.groups["phase"] == phase)
                    alike &= np.isfinite(rows.values[metric])
                    yield from _tasks(rows.take(alike), mode, metric, phase)

    def left_out(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Mapping[str, int]:
        """Runs that ran out of memory, failed or were throttled."""
        return counted({"ran out of memory, failed or was throttled": ~_usable(bundle)})


def _usable(bundle: Bundle) -> Mask:
    return np.asarray(bundle.table("runs")["status"] == "ok", dtype=np.bool_)


def _measured(bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
    """All usable rows; graphs are those of the package where the bundle has none."""
    runs = bundle.table("runs")[_usable(bundle)].reset_index(drop=True)
    graphs = read_graphs(TorchGpu().table_of(bundle, "graphs"))
    return gpu_measurements(runs, graphs, catalog)


def _tasks(rows: Measurements, mode: str, metric: str, phase: str) -> Iterator[Task]:
    """One task for each GPU."""
    quantity = metric.rpartition("_")[0]
    part = quantity if mode == "operators" else f"{phase}_{quantity}"
    for device in np.unique(rows.groups["device"]):
        own = rows.groups["device"] == device
        judged = rows.take(own)
        yield Task(
            f"{mode}/{part}",
            metric,
            judged,
            device=str(device),
            baselines=_baselines(judged, rows.take(~own), metric),
            device_only=mode == "recorded",
        )


def _baselines(judged: Measurements, others: Measurements, metric: str) -> dict[str, Column]:
    """Constants: the median on other GPUs, of power as a share of the design power."""
    scale = np.ones(len(judged))
    values, found = others.values[metric], {}
    if metric == "power_w":
        scale, values = _tdp_w(judged), values / _tdp_w(others)
        found["constant_share"] = CONSTANT_SHARE * scale
    if len(others):
        found["other_devices"] = float(np.median(values)) * scale
    return found


def _tdp_w(rows: Measurements) -> Column:
    return np.array([query.device.tdp_w for query in rows.queries], dtype=np.float64)
