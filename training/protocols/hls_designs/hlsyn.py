"""hlsyn: cycles and area of hardware designs, of unseen programs and of programs in training."""

import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.datasets.hls_designs.hlsyn import INDUCTIVE, HLSyn
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.data.named.synthesis import TOOLS, VCU1525
from forerun.data.program import ProgramGraph
from forerun.data.query import Query
from forerun.data.workload import Design
from forerun.models.hls_designs.features import METRICS
from forerun.training.protocols.joined_tables import joined_table
from forerun.training.protocols.protocol import Column, DatasetProtocols, Fold, Task

SHOTS = 20


class HLSynProtocols(DatasetProtocols):
    """Five targets for each design; the published score is the sum of their RMSE."""

    dataset = "hlsyn"
    joined = ("graph_nodes", "graph_edges")
    reads = MappingProxyType({"designs": ("kernel", "tool", "pragmas_json", *METRICS)})

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """Designs with a label, without the programs that the protocol of either tool holds out.

        A folder of held-out programs is therefore evaluated as in the published protocol.
        """
        designs = bundle.table("designs")
        out = {kernel for kernels in INDUCTIVE.values() for kernel in kernels}
        kept = (designs["latency_cycles"] > 0) & ~designs["kernel"].isin(sorted(out))
        return design_measurements(designs[kept], bundle)

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """The published splits; the inductive one without and with 20 designs of each program."""
        designs = bundle.table("designs")
        for split in HLSyn().checked_splits(bundle):
            if not split.train.any():
                continue
            train = design_measurements(designs[split.train], bundle)
            held_out = design_measurements(designs[split.held_out], bundle)
            yield Fold(split.protocol, train, list(_tasks(split.protocol, held_out)))

    def evaluation_tasks(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Iterator[Task]:
        """Designs of programs that are not in the training set."""
        designs = bundle.table("designs")
        new = (designs["latency_cycles"] > 0) & ~designs["kernel"].isin(
            list(seen.get("kernel", ()))
        )
        for tool, rows in designs[new].groupby("tool"):
            yield from _tasks(f"inductive/{tool}", design_measurements(rows, bundle))


def performance(cycles: Column) -> Column:
    """The published target: log2(1e7 / cycles) / 2."""
    return np.asarray(np.log2(1e7 / cycles) / 2.0)


def share(used: Column) -> Column:
    """Identity: resource shares of the chip are scored on their own scale."""
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
    return Measurements(
        queries=queries,
        values={metric: rows[metric].to_numpy(dtype=np.float64) for metric in METRICS},
        groups={
            name: rows[name].astype(str).to_numpy(dtype=np.str_) for name in ("kernel", "tool")
        },
    )


def _tasks(protocol: str, held_out: Measurements) -> Iterator[Task]:
    """One task for each metric and program; tasks of the same name are pooled."""
    part, tool = protocol.split("/")
    for metric in METRICS:
        scale = performance if metric == "latency_cycles" else share
        for kernel in np.unique(held_out.groups["kernel"]):
            mine = held_out.take(held_out.groups["kernel"] == kernel)
            if part == "transductive":
                yield Task(protocol, metric, mine, scale=scale)
                continue
            yield Task(f"inductive_0_shot/{tool}", metric, mine, scale=scale)
            if len(mine) > SHOTS:
                name = f"inductive_{SHOTS}_shot/{tool}"
                yield Task(name, metric, mine, shots=SHOTS, suggested=True, scale=scale)
