"""wa_hls4ml: cycles and area of dense layers, with output widths or settings held out.

Nothing is published for this grid. The full benchmark and rule4ml report R2 of 0.8 to 0.98 and
SMAPE of 10 to 30 % by target on other rows, which are not comparable.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.datasets.hls_designs.wa_hls4ml import ASKED, TABLE
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.data.named.synthesis import VU13P
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Benchmark
from forerun.models.benchmark_suites.scores import GROUP
from forerun.training.protocols import protocol as dp

SUITE = "hls4ml dense layer"

LABELS: Mapping[str, str] = {
    "latency_cycles": "WorstLatency",
    "lut": "LUT",
    "ff": "FF",
    "dsp": "DSP",
    "bram": "BRAM_18K",
}
"""Metric -> column."""


class WaHls4mlProtocols(dp.DatasetProtocols):
    """Five targets for each layer; layers whose synthesis failed are left out."""

    dataset = "wa_hls4ml"
    unseen: ClassVar = {"unseen_width": {"d_out": dp.NEW}}
    reads: ClassVar = {TABLE: (*ASKED, *LABELS.values())}

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, dp.Kept]:
        """All layers with a label."""
        grid = bundle.table(TABLE)
        kept = np.flatnonzero(grid["LUT"].notna())
        return layer_measurements(grid.iloc[kept]), kept

    def sides(
        self, bundle: Bundle, rows: Measurements, kept: dp.Kept = dp.EVERY
    ) -> Iterator[tuple[str, Measurements, Measurements]]:
        """Intervals are calibrated on groups of what a protocol holds out."""
        settings = replace(rows, groups={**rows.groups, GROUP: rows.groups["setting"]})
        for protocol, train, held_out in super().sides(bundle, settings, kept):
            if protocol == "unseen_width":
                train, held_out = _by_width(train), _by_width(held_out)
            yield protocol, train, held_out

    def tasks(self, protocol: str, held_out: Measurements, train: dp.Trained) -> dp.Tasks:
        """One task for each metric."""
        return (dp.Task(f"{protocol}/{metric}", metric, held_out) for metric in LABELS)


def _by_width(rows: Measurements) -> Measurements:
    return replace(rows, groups={**rows.groups, GROUP: rows.groups["d_out"]})


def layer_measurements(grid: pd.DataFrame) -> Measurements:
    """Rows of `dense_grid_v0` with a label as measured tests, grouped by output width."""
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
    return Measurements(queries, values, {**groups, GROUP: groups["d_out"]})
