"""contention: P beside neighbours, of families of programs, neighbours and dynamics unseen."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.datasets.contention import QUESTION, TARGETS, Contention
from forerun.data.device import Device, DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.readers.contention_tables import beside_one_load, colocations
from forerun.models.colocation import ColocationBoost, ProgramMean
from forerun.models.colocation_network import ColocationNetwork
from forerun.models.predictor import Predictor
from forerun.training.tasks.task import Exam, Examiner, Task

GUEST: Final = Device(name="guest", vendor="unknown", kind="vm")
"""What is known of a guest is measured on it; it has no spec sheet."""


class ContentionExaminer(Examiner):
    """P in CPU and in wall time; each family, or each neighbour, is left out in turn."""

    dataset = "contention"

    def predictor(self, seed: int = 0) -> Predictor:
        """`ColocationBoost`, unfitted."""
        return ColocationBoost(seed=seed)

    def predictors(self, seed: int = 0) -> Sequence[Predictor]:
        """Boosters, the network, and the baseline."""
        return (self.predictor(seed), ColocationNetwork(seed=seed), ProgramMean())

    def teaching(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """All runs with a reference."""
        rows = contention_measurements(bundle, profiled=True)
        return rows.take(np.isfinite(rows.values[TARGETS[0]]))

    def exams(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Exam]:
        """One exam a split; what is left out in turn is pooled.

        `leave_one_family_out_profiled`: the same families, of which each program was run beside one
        load before; those runs are not judged.
        """
        rows = contention_measurements(bundle)
        profiled = contention_measurements(bundle, profiled=True)
        free = ~beside_one_load(bundle.table("runs"))
        for split in Contention().splits(bundle):
            protocol = split.protocol.partition("/")[0]
            exams = [(protocol, rows, split.judged)]
            if protocol == "leave_one_family_out":
                exams.append((f"{protocol}_profiled", profiled, split.judged & free))
            for name, of, judged in exams:
                train, asked = of.take(split.train), of.take(judged)
                if len(train) and len(asked):
                    yield Exam(name, train, list(contention_tasks(name, train, asked)))

    def judged_only(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Iterator[Task]:
        """Runs of families never seen, else of neighbours never seen, else of other sessions."""
        rows = self.teaching(bundle, catalog)
        left = rows.groups["neighbour"] != "none"
        for key, protocol in (
            ("family", "leave_one_family_out"),
            ("neighbour", "leave_one_corunner_out"),
            ("session", "another_session"),
        ):
            new = left & ~np.isin(rows.groups[key], list(seen.get(key, ())))
            left = left & ~new
            if new.any():
                yield from contention_tasks(protocol, None, rows.take(new))


def contention_tasks(
    protocol: str, train: Measurements | None, judged: Measurements
) -> Iterator[Task]:
    """One task a metric, with the baseline that knows the program alone."""
    for metric in TARGETS:
        if not np.isfinite(judged.values[metric]).any():
            continue
        baselines = {}
        if train is not None:
            mean = ProgramMean().fit(train).predict(judged.queries)
            baselines["program_mean"] = mean.values[metric]
        repeats = judged.groups["repeated"]
        yield Task(f"{protocol}/{metric}", metric, judged, baselines=baselines, repeats=repeats)


def contention_measurements(bundle: Bundle, *, profiled: bool = False) -> Measurements:
    """Runs as measured programs beside neighbours, in the order of the table.

    Args:
        bundle: with `runs` and `samples`.
        profiled: whether programs come with what one load did to them.
    """
    runs = bundle.table("runs")
    beside = colocations(runs, bundle.table("samples"), profiled=profiled)
    queries = [Query(one, GUEST) for one in beside]
    keys = {"victim": "program", "family": "family", "neighbour": "neighbour", "mode": "mode"}
    groups = {new: runs[old].astype(str).to_numpy(dtype=np.str_) for old, new in keys.items()}
    groups["session"] = (runs["session"] + " " + runs["started_at"].str[:10]).to_numpy(np.str_)
    groups["repeated"] = runs[list(QUESTION)].astype(str).agg(" ".join, axis=1).to_numpy(np.str_)
    values = {metric: runs[metric].to_numpy(dtype=np.float64) for metric in TARGETS}
    return Measurements(queries, values, groups)
