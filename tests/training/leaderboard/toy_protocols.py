"""A made-up dataset for the leaderboard: two protocols, two predictors, known errors."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from forerun.data.graph import Operator
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel
from forerun.models.baselines.constant import Constant
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Task
from tests.devices import CATALOG

RELU = Operator("elementwise", "relu", ((4096, 4096),), ((4096, 4096),))


def measured(values, device="a10") -> Measurements:
    queries = [Query(Kernel(RELU), CATALOG.get(device))] * len(values)
    return Measurements.of(queries, {"latency_ms": values}, {})


@dataclass(frozen=True)
class Mean(Constant):
    """What was measured on average; notes every fit."""

    name: ClassVar[str] = "mean"
    fits: ClassVar[list[str]] = []

    def fit(self, measurements):
        self.fits.append(f"{self.name} {len(measurements)}")
        return super().fit(measurements)

    def adapt(self, measurements):
        return replace(self, means=Constant().fit(measurements).means)


@dataclass(frozen=True)
class Seeded(Mean):
    """One percent more for every seed, and ten to begin with."""

    seed: int = 0
    name: ClassVar[str] = "seeded"

    def fit(self, measurements):
        found = super().fit(measurements)
        more = 1.1 + self.seed / 100
        return replace(found, means={m: v * more for m, v in found.means.items()})


class ToyProtocols(DatasetProtocols):
    """`whole` trains on 2 ms in one fold, `folds` on 1 ms and 2 ms in two; evaluated on 2 ms."""

    dataset = "toy"

    def predictor(self, seed=0):
        return Mean()

    def predictors(self, seed=0):
        return Mean(), Seeded(seed=seed)

    def training_rows(self, bundle, catalog):
        return measured([2.0])

    def folds(self, bundle, catalog) -> Iterator[Fold]:
        for protocol, train_ms in (("whole", 2.0), ("folds", 1.0), ("folds", 2.0)):
            published = {"published_them": np.ones(8)}
            held_out = measured([2.0] * 8)
            task = Task(f"{protocol}/x", "latency_ms", held_out, baselines=published)
            yield Fold(protocol, measured([train_ms, train_ms]), [task])

    def evaluation_tasks(self, bundle, catalog, seen):
        yield from ()
