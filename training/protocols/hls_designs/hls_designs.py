"""hlsyn and wa_hls4ml: cycles and area of hardware designs.

hlsyn has designs of programs, which are in training or held out; wa_hls4ml has dense layers, with
output widths or settings held out.

There are no published predictions for the rows of wa_hls4ml. The full benchmark and rule4ml report
R2 of 0.8 to 0.98 and SMAPE of 10 to 30 % by target on other rows, which are not comparable.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.columns import Column, Mask
from forerun.data.datasets.hls_designs.hlsyn import INDUCTIVE
from forerun.data.datasets.hls_designs.wa_hls4ml import ASKED, TABLE, WaHls4ml
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.data.named.synthesis import TOOLS, VCU1525, VU13P
from forerun.data.program import ProgramGraph
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Benchmark, Design
from forerun.models.benchmark_suites.scores import GROUP
from forerun.models.hls_designs.features import METRICS
from forerun.training.protocols import protocol as dp
from forerun.training.protocols.joined_tables import joined_table

SHOTS = 20


class HLSynProtocols(dp.DatasetProtocols):
    """Five targets for each design; the published score is the sum of their RMSE."""

    dataset = "hlsyn"
    pooled = False
    joined = ("graph_nodes", "graph_edges")
    reads: ClassVar = {"designs": ("kernel", "tool", "pragmas_json", *METRICS)}

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, dp.Kept]:
        """All designs; those without a label are in no split."""
        return design_measurements(bundle.table("designs"), bundle), dp.EVERY

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """Designs with a label, without the programs that the protocol of either tool holds out.

        A folder of held-out programs is thus evaluated as in the published protocol.
        """
        rows, _ = self.measured(bundle, catalog)
        out = [kernel for kernels in INDUCTIVE.values() for kernel in kernels]
        return rows.take(_labelled(rows) & ~np.isin(rows.groups["kernel"], out))

    def tasks(self, protocol: str, held_out: Measurements, train: dp.Trained) -> dp.Tasks:
        """One task for each metric and program; tasks with the same name are pooled.

        Held-out programs are evaluated zero-shot and with 20 designs each.
        """
        part, tool = protocol.split("/")
        names = {0: protocol}
        if part == "inductive":
            names = {shots: f"inductive_{shots}_shot/{tool}" for shots in (0, SHOTS)}
        for metric in METRICS:
            scale = performance if metric == "latency_cycles" else share
            for task in dp.tasks_by(held_out, ("kernel",), protocol, metric, scale=scale):
                for shots, name in names.items():
                    if len(task.held_out) > shots:
                        asked = dp.Support(shots, suggested=shots > 0)
                        yield replace(task, name=name, support=asked)

    def evaluation_tasks(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> dp.Tasks:
        """Designs of programs that are not in the training set."""
        rows, _ = self.measured(bundle, catalog)
        rows = rows.take(_labelled(rows) & ~dp.is_seen(rows, "kernel", seen))
        for tool in np.unique(rows.groups["tool"]):
            yield from self.tasks(f"inductive/{tool}", rows.take(rows.groups["tool"] == tool), None)


def _labelled(rows: Measurements) -> Mask:
    return np.asarray(rows.values["latency_cycles"] > 0)


def performance(cycles: Column) -> Column:
    """The published target: log2(1e7 / cycles) / 2."""
    return np.asarray(np.log2(1e7 / cycles) / 2.0)


def share(used: Column) -> Column:
    """Identity: shares of chip resources are scored on their own scale."""
    return used


def program_graphs(bundle: Bundle) -> dict[str, ProgramGraph]:
    """Program -> its graph, from the tables `graph_nodes` and `graph_edges`."""
    edges = {
        str(kernel): tuple(map(tuple, rows[["src", "dst", "flow", "position"]].to_numpy().tolist()))
        for kernel, rows in joined_table(bundle, "graph_edges", "hlsyn").groupby("kernel")
    }
    found = {}
    for kernel, rows in joined_table(bundle, "graph_nodes", "hlsyn").groupby("kernel"):
        nodes = rows.sort_values("node")
        found[str(kernel)] = ProgramGraph(
            types=tuple(nodes["type"].tolist()),
            texts=tuple(nodes["text"].tolist()),
            full_texts=tuple(nodes["full_text"].fillna("").tolist()),
            edges=edges.get(str(kernel), ()),
            blocks=tuple(nodes["block"].tolist()),
            functions=tuple(nodes["function"].tolist()),
        )
    return found


def design_measurements(rows: pd.DataFrame, bundle: Bundle) -> Measurements:
    """Rows of the table `designs` as measured designs, with the groups `kernel` and `tool`."""
    programs = program_graphs(bundle)
    queries = []
    for kernel, tool, text in zip(rows["kernel"], rows["tool"], rows["pragmas_json"], strict=True):
        directives = sorted((place, str(value)) for place, value in json.loads(text).items())
        queries.append(Query(Design(programs[kernel], tuple(directives)), VCU1525, TOOLS[tool]))
    groups = {name: rows[name].astype(str).to_numpy(dtype=np.str_) for name in ("kernel", "tool")}
    values = {metric: rows[metric].to_numpy(dtype=np.float64) for metric in METRICS}
    return Measurements(queries, values, groups)


SUITE = "hls4ml dense layer"

LABELS: Mapping[str, str] = WaHls4ml.facts["labels"]
"""Metric -> column."""


class WaHls4mlProtocols(dp.DatasetProtocols):
    """Five targets for each layer; layers whose synthesis failed are skipped."""

    dataset = "wa_hls4ml"
    unseen: ClassVar = {"unseen_width": {"d_out": dp.NEW}}
    reads: ClassVar = {TABLE: (*ASKED, *LABELS.values())}

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, dp.Kept]:
        """All layers with a label."""
        grid = bundle.table(TABLE)
        kept = np.flatnonzero(grid["LUT"].notna())
        return layer_measurements(grid.iloc[kept]), kept

    def sides(self, bundle: Bundle, rows: Measurements, kept: dp.Kept = dp.EVERY) -> dp.Sides:
        """Intervals are calibrated on groups of what the protocol holds out."""
        for protocol, *two_sides in super().sides(bundle, rows, kept):
            key = "d_out" if protocol == "unseen_width" else "setting"
            train, held_out = (
                replace(
                    rows_of_side, groups={**rows_of_side.groups, GROUP: rows_of_side.groups[key]}
                )
                for rows_of_side in two_sides
            )
            yield protocol, train, held_out

    def tasks(self, protocol: str, held_out: Measurements, train: dp.Trained) -> dp.Tasks:
        """One task for each metric."""
        return (dp.Task(f"{protocol}/{metric}", metric, held_out) for metric in LABELS)


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
