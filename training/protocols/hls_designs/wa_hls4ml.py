"""wa_hls4ml: cycles and area of dense layers, with output widths or settings held out.

Nothing is published for this grid. The full benchmark and rule4ml report R2 of 0.8 to 0.98 and
SMAPE of 10 to 30 % by target on other rows, which docs/protocols.md mentions without a table.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.datasets.hls_designs.wa_hls4ml import ASKED, TABLE, WaHls4ml
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.data.named.synthesis import VU13P
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Benchmark
from forerun.models.benchmark_suites.scores import GROUP
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Task

SUITE = "hls4ml dense layer"

LABELS: Mapping[str, str] = {
    "latency_cycles": "WorstLatency",
    "lut": "LUT",
    "ff": "FF",
    "dsp": "DSP",
    "bram": "BRAM_18K",
}
"""Metric -> column."""


class WaHls4mlProtocols(DatasetProtocols):
    """Five targets for each layer; layers whose synthesis failed are left out."""

    dataset = "wa_hls4ml"
    reads = MappingProxyType({TABLE: (*ASKED, *LABELS.values())})

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """All layers with a label."""
        grid = bundle.table(TABLE)
        return layer_measurements(grid[grid["LUT"].notna()])

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """One fold for each split; widths, and folds of settings, are pooled."""
        grid = bundle.table(TABLE)
        for split in WaHls4ml().checked_splits(bundle):
            protocol = split.protocol.partition("/")[0]
            group = "d_out" if protocol == "unseen_width" else "setting"
            if split.train.any():
                train = layer_measurements(grid[split.train], group)
                held_out = layer_measurements(grid[split.held_out], group)
                yield Fold(protocol, train, list(_tasks(protocol, held_out)))

    def evaluation_tasks(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Iterator[Task]:
        """Layers with output widths that are not in the training set."""
        rows = self.training_rows(bundle, catalog)
        new = ~np.isin(rows.groups["d_out"], list(seen.get("d_out", ())))
        if new.any():
            yield from _tasks("unseen_width", rows.take(new))


def layer_measurements(grid: pd.DataFrame, group: str = "d_out") -> Measurements:
    """Rows of `dense_grid_v0` as measured tests.

    Args:
        grid: rows with a label.
        group: `d_out` or `setting`, the key of held-out groups when intervals are calibrated.
    """
    queries = []
    for d_in, d_out, bits, reuse, strategy in grid[list(ASKED)].itertuples(index=False):
        numbers = {"d_in": d_in, "d_out": d_out, "precision_bits": bits, "reuse_factor": reuse}
        settings: dict[str, float | str] = {name: float(v) for name, v in numbers.items()}
        # The reuse factor is the number of times that each multiplier is used.
        settings |= {"multipliers": d_in * d_out / reuse, "strategy": str(strategy)}
        workload = Benchmark(SUITE, tuple(sorted(settings.items())))
        queries.append(Query(workload, VU13P, Software(framework="hls4ml")))
    groups = {
        "d_out": grid["d_out"].astype(str).to_numpy(dtype=np.str_),
        "setting": grid[list(ASKED)].astype(str).agg(" ".join, axis=1).to_numpy(dtype=np.str_),
    }
    values = {m: grid[column].to_numpy(dtype=np.float64) for m, column in LABELS.items()}
    return Measurements(queries, values, {**groups, GROUP: groups[group]})


def _tasks(protocol: str, held_out: Measurements) -> Iterator[Task]:
    for metric in LABELS:
        yield Task(f"{protocol}/{metric}", metric, held_out)
