"""torch_gpu: the released predictors on two GPUs that this project measured; nothing is fitted.

The predictors were trained on other datasets. Of networks on these GPUs, those hold three training
runs on an H100 (lambda_bench) and the power of diffusion models on an H100 (mlenergy). The matrix
products of aiconfigurator, in 16 bits and fp8, were measured on both, so that linear layers in
these precisions are no test of an unseen GPU.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
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
from forerun.models.baselines.roofline import Roofline
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Task, counted

CONSTANT_SHARE: Final = 0.9
"""Share of the design power that the baseline `constant_share` predicts for every run."""
BIN_MIB: Final = 8000.0
"""Width of the bins of the score `bin_accuracy` of memory, as in `gpumemnet`."""
BOUNDS_MS: Final = (0.005, 0.05, 0.5)
"""Roofline times that divide rows into the groups `roofline`."""
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
        """One task for each execution mode, phase, metric and GPU.

        `operators/latency` is the time of the GPU alone, `operators/launched_latency` that of one
        synchronised run with its launch by the host. The baseline `other_devices` is the median of
        the same task on the other GPUs.
        """
        rows = _measured(bundle, catalog)
        operators = rows.take(rows.groups["mode"] == "operators")
        for metric in METRICS["operators"]:
            yield from _tasks(operators, f"operators/{_quantity(metric)}", metric)
        launched = {"latency_ms": operators.values["launched_ms"]}
        launches = replace(operators, values=launched)
        yield from _tasks(launches, "operators/launched_latency", "latency_ms")
        for mode in ("eager", "recorded"):
            for metric in METRICS[mode]:
                for phase in ("inference", "training"):
                    alike = (rows.groups["mode"] == mode) & (rows.groups["phase"] == phase)
                    name = f"{mode}/{phase}_{_quantity(metric)}"
                    yield from _tasks(rows.take(alike), name, metric)

    def left_out(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Mapping[str, int]:
        """Runs that ran out of memory, failed or were throttled."""
        return counted({"ran out of memory, failed or was throttled": ~_usable(bundle)})


def _usable(bundle: Bundle) -> Mask:
    return np.asarray(bundle.table("runs")["status"] == "ok", dtype=np.bool_)


def _measured(bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
    """All usable rows, with the group `roofline` of their bounds.

    Graphs are those of the package where the bundle has none.
    """
    runs = bundle.table("runs")[_usable(bundle)].reset_index(drop=True)
    graphs = read_graphs(TorchGpu().table_of(bundle, "graphs"))
    rows = gpu_measurements(runs, graphs, catalog)
    bounds = Roofline().predict(rows.queries).values["latency_ms"]
    edges = ("0", *map(str, BOUNDS_MS), "more")
    names = np.array([f"{low} to {high} ms" for low, high in pairwise(edges)])
    return replace(rows, groups={**rows.groups, "roofline": names[np.digitize(bounds, BOUNDS_MS)]})


def _quantity(metric: str) -> str:
    """A metric without its unit."""
    return metric.rpartition("_")[0]


def _tasks(rows: Measurements, name: str, metric: str) -> Iterator[Task]:
    """One task for each GPU, of rows with a measured value."""
    rows = rows.take(np.isfinite(rows.values[metric]))
    for device in np.unique(rows.groups["device"]):
        own = rows.groups["device"] == device
        judged = rows.take(own)
        yield Task(
            name,
            metric,
            judged,
            device=str(device),
            baselines=_baselines(judged, rows.take(~own), metric),
            bin_width=BIN_MIB if metric in MEMORY else 0.0,
            device_only=name.startswith("recorded/"),
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
