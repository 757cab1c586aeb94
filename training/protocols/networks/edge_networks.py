"""edge_networks: networks on several cores of a processor, adapted to those on one core of it."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.columns import Column
from forerun.data.datasets import dataset
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.tables.edge_networks import ncnn_measurements
from forerun.training.protocols import protocol as dp


class EdgeNetworksProtocols(dp.DatasetProtocols):
    """Processors left out; the predictor adapts to their runs with one thread."""

    dataset = "edge_networks"
    each_held_out: ClassVar = {"unseen_device": "device"}
    held_out_by: ClassVar = {"unseen_device": ("device",)}

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, dp.Kept]:
        """The fastest run of each network at each number of threads."""
        rows = bundle.table("ncnn")
        kept = np.flatnonzero(dataset("edge_networks").parts(rows)["scaling"])
        return ncnn_measurements(rows.iloc[kept]), kept

    def tasks(self, protocol: str, held_out: Measurements, train: dp.Trained) -> dp.Tasks:
        """Runs with several threads, of each device."""
        alone = held_out.groups["threads"] == "1"
        known, several = held_out.take(np.flatnonzero(alone)), held_out.take(np.flatnonzero(~alone))
        yield dp.Task(
            f"{protocol}/several_threads",
            "latency_ms",
            several,
            baselines={"shared_equally": shared_equally(known, several.queries)},
            support=dp.Support(len(known), known),
        )


def shared_equally(alone: Measurements, queries: Sequence[Query]) -> Column:
    """Baseline: milliseconds with one thread over the number of threads, shape (n,)."""
    ms = {
        query.network.graph.digest: one
        for query, one in zip(alone.queries, alone.values["latency_ms"], strict=True)
    }
    return np.array([ms[q.network.graph.digest] / (q.software.threads or 1) for q in queries])
