"""A package of somebody else's: what CONTRIBUTING lets it declare, each as small as it can be.

`test_plugins` copies this file to where a package is installed; nothing else imports it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from forerun.data.collectors.runner.trial import Trial
from forerun.data.collectors.workloads.operators import linear
from forerun.data.datasets.dataset import Dataset
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.schema import number
from forerun.data.split import Split
from forerun.data.upstream.downloads import Upstream
from forerun.data.workload import Kernel
from forerun.models.baselines.constant import Constant
from forerun.models.catalog import CatalogEntry
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Task


class ToyDataset(Dataset):
    """Latencies of matrix products by number of rows."""

    name = "toy"
    title = "Toy rows"
    licence = "CC0-1.0"
    citation = "nobody"
    published = "nothing"
    upstream = Upstream("nobody", "toy", "0" * 40, "toy.json")
    csv_tables = ("runs",)

    def tidy(self, raw):
        rows = np.arange(1, 9)
        return {"runs": pd.DataFrame({"rows": rows, "latency_ms": 0.5 * rows})}

    def tables(self):
        import pandera.pandas as pa

        return {"runs": pa.DataFrameSchema({"rows": number("Int64"), "latency_ms": number()})}

    def splits(self, bundle):
        large = bundle.table("runs")["rows"].to_numpy() > 6
        return [Split("large", "runs", ~large, large)]

    def flags(self, bundle):
        return pd.DataFrame()


class ToyProtocols(DatasetProtocols):
    """The largest matrix products held out."""

    dataset = "toy"

    def training_rows(self, bundle, catalog):
        runs = bundle.table("runs")
        device = catalog.get("a100-sxm4-40gb")
        queries = [Query(Kernel(linear(n, 16, 16)), device) for n in runs["rows"]]
        groups = {"device": np.full(len(runs), device.name)}
        return Measurements(queries, {"latency_ms": runs["latency_ms"].to_numpy()}, groups)

    def folds(self, bundle, catalog) -> Iterator[Fold]:
        rows = self.training_rows(bundle, catalog)
        for split in ToyDataset().splits(bundle):
            task = Task(f"{split.protocol}/products", "latency_ms", rows.take(split.held_out))
            yield Fold(split.protocol, rows.take(split.train), [task])

    def evaluation_tasks(self, bundle, catalog, seen) -> Iterator[Task]:
        yield from ()


@dataclass(frozen=True)
class ToyPredictor(Constant):
    """The mean of the training rows."""

    name: ClassVar[str] = "toy"


TOY = CatalogEntry(
    f"{__name__}:ToyPredictor",
    "latency of toys",
    trained_on=(("toy",),),
    asked_before="operator_boost",
)


class ToyReader:
    """Files of one line, `TOY n`: one operator on n x n elements."""

    name = "toy"

    def accepts(self, path, head):
        return head.startswith(b"TOY ")

    def read(self, source, sizes):
        n = int(source.split()[1])
        return OperatorGraph((Operator("relu", "relu", ((n, n),), ((n, n),)),), source="toy")


class ToyCollector:
    """Says that a matrix product takes half a millisecond a row."""

    name = "toy"
    rate = 1e9

    def fixed_s(self, trial):
        return 0.001

    def available(self):
        return None

    def plan(self):
        return (Trial(linear(1, 16, 16)), Trial(linear(2, 16, 16)))

    def about(self):
        return {"device": "a100-sxm4-40gb", "framework_version": "1.0"}

    def measure(self, trial):
        rows = trial.subject.input_shapes[0][0]
        return {
            "latency_ms": 0.5 * rows,
            "repeats": 3,
            "spread": 0.01,
            "window_s": 0.1,
            "status": "ok",
            "energy_reason": "no meter",
        }


NEITHER_CLASS_NOR_ENTRY = 3
