"""onnxruntime_cpu: latency and memory on CPUs, with networks or thread counts held out."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.columns import Column
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.operators.costs import operator_cost
from forerun.features.tables.torch_gpu import processor_measurements
from forerun.training.protocols import protocol as dp

METRICS = ("latency_ms", "peak_memory_mib")


class OnnxruntimeCpuProtocols(dp.DatasetProtocols):
    """Networks held out in five folds; runs on two threads, predicted from runs on one."""

    dataset = "onnxruntime_cpu"
    unseen: ClassVar = {"unseen_device": {"device": dp.NEW}}
    held_out_by: ClassVar = {"unseen_networks": ("model",), "unseen_threads": ()}

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, dp.Kept]:
        """All rows."""
        return processor_measurements(bundle.table("runs")), dp.EVERY

    def tasks(self, protocol: str, held_out: Measurements, train: dp.Trained) -> dp.Tasks:
        """Latency and memory; without a training set, only of networks."""
        networks = [query.workload.kind == "network" for query in held_out.queries]
        held_out = held_out if train is not None else held_out.take(np.flatnonzero(networks))
        for metric in METRICS:
            baselines = {}
            if train is not None and metric == "latency_ms":
                baselines["flops_line"] = flops_line(train, held_out.queries)
            if np.isfinite(held_out.values[metric]).any():
                yield dp.Task(f"{protocol}/{metric}", metric, held_out, baselines=baselines)


def flops_line(train: Measurements, queries: Sequence[Query]) -> Column:
    """Baseline: FLOPs over the median FLOP rate of the training networks, by number of threads.

    Returns:
        Latency in ms, shape (n,).
    """
    threads = np.array([query.software.threads or 1 for query in train.queries])
    networks = np.array([query.workload.kind == "network" for query in train.queries])
    work = np.array([_flops(query) for query in train.queries])
    each = train.values["latency_ms"] / work
    common = float(np.median(each[networks])) if networks.any() else float(np.median(each))
    rates = {
        int(count): float(np.median(each[networks & (threads == count)]))
        for count in np.unique(threads[networks])
    }
    return np.array([_flops(q) * rates.get(q.software.threads or 1, common) for q in queries])


def _flops(query: Query) -> float:
    run = query.run
    if run.kind == "kernel":
        return max(1.0, operator_cost(run.operator).flops)
    total = sum(operator_cost(op).flops * op.repeat for op in run.graph.operators)
    return max(1.0, total * run.batch_size / run.graph.batch_size)
