"""Kernel graphs with their runs as data of PyTorch Geometric.

A graph that several runs of a batch share (on several devices, at several batch sizes) is encoded
once in that batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forerun.data.columns import Column, Positions
from forerun.data.query import Query
from forerun.features.networks.features import chip_of
from forerun.features.networks.kernel_graph import KernelGraph, kernel_graphs
from forerun.models.graph_network.inputs import Runs, runs_of
from forerun.models.networks.additive_model import AdditiveLatencyModel
from forerun.models.networks.features import rows_by_lowering
from forerun.models.neural import geometric


@dataclass(frozen=True)
class RunGraphs:
    """The kernel graph of each of n queries.

    Attributes:
        graphs: distinct kernel graphs.
        of: (n,) index into `graphs` of each query.
    """

    graphs: Sequence[KernelGraph]
    of: Positions

    @classmethod
    def of_queries(cls, queries: Sequence[Query]) -> "RunGraphs":
        """Lower every network once for each lowering mode; equal results share one graph."""
        known: dict[bytes, int] = {}
        graphs: list[KernelGraph] = []
        of = np.empty(len(queries), dtype=np.intp)
        for network, modes in rows_by_lowering(queries):
            lowered = kernel_graphs(network, tuple(modes))
            for rows, graph in zip(modes.values(), lowered, strict=True):
                number = known.setdefault(graph.fingerprint, len(graphs))
                if number == len(graphs):
                    graphs.append(graph)
                of[rows] = number
        return cls(graphs, of)

    def runs(
        self, queries: Sequence[Query], rows: Positions, times: Sequence[AdditiveLatencyModel]
    ) -> list[tuple[Positions, KernelGraph, Runs]]:
        """Each graph that some queries run, with their positions and the runs.

        Args:
            queries: the n networks.
            rows: positions of the queries.
            times: additive model of each of the n queries.
        """
        rows = rows[np.argsort(self.of[rows], kind="stable")]
        groups = np.split(rows, np.flatnonzero(np.diff(self.of[rows])) + 1)
        runs = []
        for own in groups:
            selected, models = [queries[row] for row in own], [times[row] for row in own]
            chips = [chip_of(query.device, query.run.precision) for query in selected]
            graph = self.graphs[self.of[own[0]]]
            runs.append((own, graph, runs_of(graph, selected, chips, models)))
        return runs


def graph_data(
    rows: Positions, graph: KernelGraph, runs: Runs, log_s: Column, weights: Column
) -> Any:
    """A kernel graph and q of its runs as `torch_geometric.data.Data`.

    Its names are those of the network's inputs. PyTorch Geometric adds the number of kernels before
    a graph to what is called `index`, and the number of runs before it to what is called `batch`.

    Args:
        rows: (q,) positions of the runs in the training set.
        graph: that they run.
        runs: features of the runs.
        log_s: logarithm of the measured seconds of all rows of the training set.
        weights: of all rows in the loss.
    """
    import torch

    inputs = {"root": graph.root, "x": graph.features, **runs.inputs(slice(None))}
    inputs |= {"before_index": graph.before, "after_index": graph.after}
    inputs |= {"log_measured": log_s[rows], "weight": weights[rows], "rows": rows}
    tensors = {name: torch.from_numpy(values) for name, values in inputs.items()}
    single = {n: t.float() if t.dtype == torch.float64 else t for n, t in tensors.items()}
    return geometric().data.Data(**single)
