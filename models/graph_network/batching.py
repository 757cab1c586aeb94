"""Batches of kernel graphs and their runs, concatenated for training.

A graph that several runs of a batch share (on several devices, at several batch sizes) is encoded
once in that batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.features.lowering import LoweringMode, lowering_mode
from forerun.features.networks.features import chip_of
from forerun.features.networks.kernel_graph import KernelGraph, kernel_graphs
from forerun.models.graph_network.inputs import PAIR_FEATURES, RUN_FEATURES, Runs, runs_of
from forerun.models.networks.additive_model import AdditiveLatencyModel

Floats = NDArray[np.float32]
Index = NDArray[np.intp]


@dataclass(frozen=True)
class RunGraphs:
    """The kernel graph of each of n queries.

    Attributes:
        graphs: distinct kernel graphs.
        of: (n,) index into `graphs` of each query.
    """

    graphs: Sequence[KernelGraph]
    of: Index

    @classmethod
    def of_queries(cls, queries: Sequence[Query]) -> "RunGraphs":
        """Lower every network once for each lowering mode; equal results share one graph."""
        by_graph: dict[int, dict[LoweringMode, list[int]]] = {}
        for row, query in enumerate(queries):
            network = query.workload
            assert isinstance(network, Network)
            mode = lowering_mode(network.graph, network.precision, query.software)
            by_graph.setdefault(id(network.graph), {}).setdefault(mode, []).append(row)
        known: dict[bytes, int] = {}
        graphs: list[KernelGraph] = []
        of = np.empty(len(queries), dtype=np.intp)
        for modes in by_graph.values():
            network = queries[next(iter(modes.values()))[0]].workload
            assert isinstance(network, Network)
            lowered = kernel_graphs(network.graph, tuple(modes))
            for rows, graph in zip(modes.values(), lowered, strict=True):
                number = known.setdefault(graph.fingerprint, len(graphs))
                if number == len(graphs):
                    graphs.append(graph)
                of[rows] = number
        return cls(graphs, of)

    def take(self, rows: Index) -> "RunGraphs":
        """The queries at these positions, with all graphs."""
        return RunGraphs(self.graphs, self.of[rows])

    def runs(
        self, queries: Sequence[Query], times: Sequence[AdditiveLatencyModel]
    ) -> Iterator[tuple[Index, Runs]]:
        """For each graph, the positions of the queries that run it, and their runs.

        Args:
            queries: n networks.
            times: additive model of each query.
        """
        for rows in _by_graph(self.of, np.arange(len(self.of))):
            selected = [queries[row] for row in rows]
            chips = [chip_of(query.device, query.workload.precision) for query in selected]
            graph, models = self.graphs[self.of[rows[0]]], [times[row] for row in rows]
            yield rows, runs_of(graph, selected, chips, models)


@dataclass(frozen=True)
class Batch:
    """Some graphs and q of their runs, as inputs of the graph network.

    A pair is a kernel in a run.

    Attributes:
        rows: (q,) positions of the runs in the training set.
        root, features, before, after: concatenated over the graphs; as in `KernelGraph`.
        node, run: (p,) index of the kernel and of the run of each pair.
        pairs: (p, len(PAIR_FEATURES)) features of the pairs.
        seconds: (p, 2) busy and launch seconds, as in `forerun.models.graph_network.inputs.Runs`.
        runs: (q, len(RUN_FEATURES)) features of the runs.
    """

    rows: Index
    root: Index
    features: Floats
    before: Index
    after: Index
    node: Index
    run: Index
    pairs: Floats
    seconds: Floats
    runs: Floats


class GraphBatches:
    """Batches of a training set, whose pair features are computed once.

    Args:
        queries: n networks.
        graphs: their kernel graphs.
        times: additive model of each query.
    """

    def __init__(
        self, queries: Sequence[Query], graphs: RunGraphs, times: Sequence[AdditiveLatencyModel]
    ) -> None:
        self._graphs, self._of = graphs.graphs, graphs.of
        self._first = np.zeros(len(queries), dtype=np.intp)
        self.runs = np.empty((len(queries), len(RUN_FEATURES)), dtype=np.float32)
        pairs, seconds, filled = [], [], 0
        for rows, runs in graphs.runs(queries, times):
            self._first[rows] = filled + runs.busy.shape[1] * np.arange(len(rows))
            filled += runs.busy.size
            pairs.append(runs.pairs.reshape(-1, len(PAIR_FEATURES)).astype(np.float32))
            busy_launch = np.stack([runs.busy.ravel(), runs.launch.ravel()], axis=1)
            seconds.append(busy_launch.astype(np.float32))
            self.runs[rows] = runs.runs
        self._pairs, self._seconds = np.concatenate(pairs), np.concatenate(seconds)

    def batches(
        self, rows: Index, graphs_a_batch: int, order: np.random.Generator | None = None
    ) -> Iterator[Batch]:
        """Batches that contain each of these runs once.

        Args:
            rows: positions of the runs.
            graphs_a_batch: number of graphs in a batch.
            order: shuffles the graphs; None keeps their order.
        """
        groups = _by_graph(self._of, rows)
        turns = np.arange(len(groups)) if order is None else order.permutation(len(groups))
        for start in range(0, len(groups), graphs_a_batch):
            yield self._batch([groups[i] for i in turns[start : start + graphs_a_batch]])

    def count(self, rows: Index, graphs_a_batch: int) -> int:
        """Number of batches that `batches` makes of these runs."""
        return -(-len(np.unique(self._of[rows])) // graphs_a_batch)

    def _batch(self, groups: Sequence[Index]) -> Batch:
        rows = np.concatenate(groups)
        numbers = np.array([self._of[group[0]] for group in groups])
        sizes = self._sizes[numbers]
        start = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        graphs = [self._graphs[number] for number in numbers]
        graph_of_run = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
        lengths = sizes[graph_of_run]
        at = _ranges(self._first[rows], lengths)
        return Batch(
            rows=rows,
            root=np.concatenate([g.root for g in graphs]),
            features=np.concatenate([g.features for g in graphs]),
            before=np.concatenate(
                [g.before + s for g, s in zip(graphs, start, strict=True)], axis=1
            ),
            after=np.concatenate([g.after + s for g, s in zip(graphs, start, strict=True)], axis=1),
            node=_ranges(start[graph_of_run], lengths),
            run=np.repeat(np.arange(len(rows)), lengths),
            pairs=self._pairs[at],
            seconds=self._seconds[at],
            runs=self.runs[rows],
        )

    @cached_property
    def _sizes(self) -> Index:
        return np.array([len(graph) for graph in self._graphs], dtype=np.intp)


def _by_graph(of: Index, rows: Index) -> list[Index]:
    """The rows, grouped by the graph that they run."""
    rows = rows[np.argsort(of[rows], kind="stable")]
    return np.split(rows, np.flatnonzero(np.diff(of[rows])) + 1)


def _ranges(starts: Index, lengths: Index) -> Index:
    """The concatenated ranges start, start + 1, ..., start + length - 1."""
    ends = np.cumsum(lengths)
    return np.asarray(np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths))
