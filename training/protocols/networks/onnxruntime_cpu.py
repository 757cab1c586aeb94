"""onnxruntime_cpu: latency and memory on CPUs, with networks or thread counts held out."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.columns import Column
from forerun.data.datasets.networks.onnxruntime_cpu import OnnxruntimeCpu
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.operators.costs import operator_cost
from forerun.features.tables.onnxruntime_cpu import processor_measurements
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Task

METRICS = ("latency_ms", "peak_memory_mib")


class OnnxruntimeCpuProtocols(DatasetProtocols):
    """Five folds by network; two threads, predicted from runs on one."""

    dataset = "onnxruntime_cpu"
    held_out_by = MappingProxyType({"unseen_networks": ("model",), "unseen_threads": ()})

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """All rows."""
        return processor_measurements(bundle.table("runs"))

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """One fold for each split; folds of a protocol are pooled."""
        rows = self.training_rows(bundle, catalog)
        for split in OnnxruntimeCpu().checked_splits(bundle):
            train, held_out = rows.take(split.train), rows.take(split.held_out)
            protocol = split.protocol.partition("/")[0]
            yield Fold(protocol, train, list(_tasks(protocol, train, held_out)))

    def evaluation_tasks(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Iterator[Task]:
        """Networks on devices that are not in the training set."""
        rows = self.training_rows(bundle, catalog)
        new = ~np.isin(rows.groups["device"], list(seen.get("device", ())))
        new &= np.array([query.workload.kind == "network" for query in rows.queries])
        if new.any():
            yield from _tasks("unseen_device", None, rows.take(new))


def _tasks(protocol: str, train: Measurements | None, held_out: Measurements) -> Iterator[Task]:
    for metric in METRICS:
        baselines = {}
        if train is not None and metric == "latency_ms":
            baselines["flops_line"] = flops_line(train, held_out.queries)
        if np.isfinite(held_out.values[metric]).any():
            yield Task(f"{protocol}/{metric}", metric, held_out, baselines=baselines)


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
