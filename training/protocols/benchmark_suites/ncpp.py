"""ncpp: scores of benchmark suites on unseen CPUs, as a sanity check rather than a ranking.

Each suite in the training set was run on only one CPU, so the best prediction is that CPU's score.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.datasets.benchmark_suites.ncpp import PART, SCORE, SUITE, TEST, Ncpp
from forerun.data.device import Device, DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Benchmark
from forerun.models.benchmark_suites.scores import GROUP
from forerun.training.protocols import protocol as dp

NUMBERS: Mapping[str, str] = Ncpp.facts["numbers"]
"""Column -> name of the setting in queries."""

CHOICES: Mapping[str, str] = {TEST[1]: "preset", TEST[2]: "test"}


class NcppProtocols(dp.DatasetProtocols):
    """Scores by suite; a suite without training rows is not evaluated."""

    dataset = "ncpp"
    reads: ClassVar = dict.fromkeys(("train", "test"), (SUITE, PART, SCORE, *CHOICES))

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """The rows of `train`."""
        return run_measurements(bundle.table("train"))

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[dp.Fold]:
        """Each CPU of each table held out; training uses rows of the table `train` from other CPUs.

        A CPU of `train` is the only one with training rows of its suites, so it yields no fold.
        """
        for split in Ncpp().checked_splits(bundle):
            if not bundle.has("train"):
                return
            protocol, _, part = split.protocol.partition("/")
            train = bundle.table("train")
            train = train[train[PART].astype(str) != part]
            held_out = bundle.table(split.table)[split.held_out]
            held_out = held_out[held_out[SUITE].isin(train[SUITE])]
            if len(held_out):
                rows = run_measurements(held_out)
                tasks = dp.tasks_by(rows, ("suite",), f"{protocol}/{{suite}}", "score")
                yield dp.Fold(protocol, run_measurements(train), list(tasks))

    def evaluation_tasks(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> dp.Tasks:
        """Runs on CPUs that are not in the training set."""
        for table in ("train", "test"):
            if bundle.has(table):
                rows = run_measurements(bundle.table(table))
                new = rows.take(~dp.is_seen(rows, "part", seen))
                yield from dp.tasks_by(
                    new, ("suite",), f"unseen_part_of_{table}/{{suite}}", "score"
                )


def run_measurements(runs: pd.DataFrame) -> Measurements:
    """Rows of the table `train` or `test` as measured tests; intervals are calibrated by test."""
    queries = []
    for row in runs.to_dict("records"):
        settings: dict[str, float | str] = {
            setting: float(row[column])
            for column, setting in NUMBERS.items()
            if column in row and np.isfinite(row[column])
        }
        settings |= {setting: str(row[column]) for column, setting in CHOICES.items()}
        workload = Benchmark(str(row[SUITE]), tuple(sorted(settings.items())))
        device = Device(name=f"xeon-{row[PART]}".lower(), vendor="intel", kind="cpu")
        queries.append(Query(workload, device))
    groups = {
        name: runs[column].astype(str).to_numpy(dtype=np.str_)
        for name, column in (("part", PART), ("suite", SUITE), (GROUP, TEST[2]))
    }
    return Measurements(queries, {"score": runs[SCORE].to_numpy(dtype=np.float64)}, groups)
