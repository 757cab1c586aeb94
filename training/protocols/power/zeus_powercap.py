"""zeus_powercap: power, time and energy of training jobs under power limits on a held-out GPU."""

from collections.abc import Mapping
from typing import ClassVar, Final

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.datasets.power.zeus_powercap import JOB, LIMIT, TRACE
from forerun.data.device import Device, DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.data.workload import Benchmark
from forerun.models.power.training_jobs import SUITE
from forerun.training.protocols import protocol as dp
from forerun.training.scores.task_scores import Choices

BOARDS: Final[Mapping[str, str]] = {
    "A40": "a40",
    "P100": "p100-pcie-16gb",
    "V100": "v100-pcie-32gb",
    "RTX6000": "quadro-rtx-6000",
    "RTX_6000": "quadro-rtx-6000",
}
"""GPU of the trace -> board with the same highest power limit. RTX 6000 is the Turing board: the
trace is older than the others of that name."""
PARTS: Final = {"power": "power_w", "time": "latency_ms", "energy": "energy_j"}


class ZeusPowerCapProtocols(dp.DatasetProtocols):
    """Power, time per epoch and energy of training jobs under power limits."""

    dataset = "zeus_powercap"
    split_table, pooled = TRACE, False
    unseen: ClassVar = {"unseen_device": {"device": dp.NEW}}
    reads: ClassVar = {TRACE: ("gpu", *JOB, LIMIT, "average_power", "time_per_epoch")}

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, dp.Kept]:
        """All rows of the trace."""
        return runs(bundle.table(TRACE), catalog), dp.EVERY

    def tasks(self, protocol: str, held_out: Measurements, train: dp.Trained) -> dp.Tasks:
        """Power, time and energy on each GPU, and choices of the limit of least energy."""
        for device in np.unique(held_out.groups["device"]):
            rows = held_out.take(held_out.groups["device"] == device)
            shares = np.array([_share(query) for query in rows.queries])
            rivals = {"largest_limit": -shares}
            if train is not None:
                rivals["taught_share"] = np.abs(shares - best_share(train))
            limits = Choices(rows.groups["job"], rivals)
            for part, metric in PARTS.items():
                scores = [limits] if part == "energy" else []
                name = f"unseen_device/{part}"
                yield dp.Task(name, metric, rows, device=str(device), scores=scores)


def runs(trace: pd.DataFrame, catalog: DeviceCatalog) -> Measurements:
    """Rows of the trace as measured benchmarks at a power limit; a run is one epoch."""
    boards = {str(gpu): board(str(gpu), catalog) for gpu in trace["gpu"].unique()}
    queries = []
    for row in trace.to_dict("records"):
        settings = tuple(
            (name, float(row[name]) if name == "batch_size" else str(row[name]))
            for name in sorted(JOB)
        )
        limit = Operation(power_limit_w=float(row[LIMIT]))
        workload = Benchmark(SUITE, settings)
        queries.append(Query(workload, boards[str(row["gpu"])], operation=limit))
    power = trace["average_power"].to_numpy(dtype=np.float64)
    time_ms = 1e3 * trace["time_per_epoch"].to_numpy(dtype=np.float64)
    values = {"power_w": power, "latency_ms": time_ms, "energy_j": power * time_ms / 1e3}
    jobs = trace[list(JOB)].astype(str).agg("/".join, axis=1)
    return Measurements.of(queries, values, {"job": jobs})


def board(gpu: str, catalog: DeviceCatalog) -> Device:
    """The board of a GPU's name in the trace."""
    return catalog.get(BOARDS.get(gpu.strip().upper().replace(" ", "_"), gpu))


def best_share(rows: Measurements) -> float:
    """Share of the design power, rounded to 0.1, at which the mean energy of the jobs is least.

    The energy of a job is relative to its least over all limits, so that jobs have equal weights.
    """
    shares, excess = [], []
    energy, job = rows.values["energy_j"], rows.groups["job"]
    for device in np.unique(rows.groups["device"]):
        for name in np.unique(job):
            for row in np.flatnonzero(mine := (job == name) & (rows.groups["device"] == device)):
                shares.append(_share(rows.queries[int(row)]))
                excess.append(energy[row] / energy[mine].min())
    tenths = np.round(np.array(shares) * 10.0) / 10.0
    means = {share: float(np.mean(np.array(excess)[tenths == share])) for share in set(tenths)}
    return float(min(means, key=lambda share: means[share]))


def _share(query: Query) -> float:
    assert query.operation.power_limit_w is not None
    assert query.device.tdp_w is not None
    return query.operation.power_limit_w / query.device.tdp_w
