"""Many runs of many kernel graphs laid end to end, and batches cut from them for training.

A graph that several runs share (devices, batch sizes, alike networks) is encoded once a batch.
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
Places = NDArray[np.intp]


@dataclass(frozen=True)
class RunGraphs:
    """Which kernel graph each of n queries runs.

    Attributes:
        graphs: distinct kernel graphs.
        of: (n,) positions among them.
    """

    graphs: Sequence[KernelGraph]
    of: Places

    @classmethod
    def of_queries(cls, queries: Sequence[Query]) -> "RunGraphs":
        """Lower every network once a mode; modes that come to the same share a graph."""
        by_graph: dict[int, dict[LoweringMode, list[int]]] = {}
        for row, query in enumerate(queries):
            network = query.workload
            assert isinstance(network, Network)
            mode = lowering_mode(network.graph, network.precision, query.software)
            by_graph.setdefault(id(network.graph), {}).setdefault(mode, []).append(row)
        place: dict[bytes, int] = {}
        graphs: list[KernelGraph] = []
        of = np.empty(len(queries), dtype=np.intp)
        for modes in by_graph.values():
            network = queries[next(iter(modes.values()))[0]].workload
            assert isinstance(network, Network)
            found = kernel_graphs(network.graph, tuple(modes))
            for rows, graph in zip(modes.values(), found, strict=True):
                number = place.setdefault(graph.fingerprint, len(graphs))
                if number == len(graphs):
                    graphs.append(graph)
                of[rows] = number
        return cls(graphs, of)

    def take(self, rows: Places) -> "RunGraphs":
        """The same graphs for some of the queries."""
        return RunGraphs(self.graphs, self.of[rows])

    def runs(
        self, queries: Sequence[Query], times: Sequence[AdditiveLatencyModel]
    ) -> Iterator[tuple[Places, Runs]]:
        """All runs of each graph that is run, with the positions of their queries."""
        for rows in _alike(self.of, np.arange(len(self.of))):
            mine = [queries[row] for row in rows]
            chips = [chip_of(query.device, query.workload.precision) for query in mine]
            yield (
                rows,
                runs_of(self.graphs[self.of[rows[0]]], mine, chips, [times[row] for row in rows]),
            )


@dataclass(frozen=True)
class Batch:
    """Some graphs and all their runs that take part, ready for the network.

    Attributes:
        rows: (q,) positions of the runs among all.
        root, features, before, after: of the graphs, end to end, as in `KernelGraph`.
        node, run: (p,) kernel and run of each pair.
        pairs: (p, len(PAIR_FEATURES)).
        seconds: (p, 2) busy and launch, as in `forerun.models.graph_network.inputs.Runs`.
        runs: (q, len(RUN_FEATURES)).
    """

    rows: Places
    root: Places
    features: Floats
    before: Places
    after: Places
    node: Places
    run: Places
    pairs: Floats
    seconds: Floats
    runs: Floats


class GraphBatches:
    """All graphs and runs of a training set, end to end.

    Args:
        queries: n networks.
        graphs: the graphs they run.
        times: seconds by kind of kernel, for each query.
    """

    def __init__(
        self, queries: Sequence[Query], graphs: RunGraphs, times: Sequence[AdditiveLatencyModel]
    ) -> None:
        self._graphs, self._of = graphs.graphs, graphs.of
        self._first = np.zeros(len(queries), dtype=np.intp)
        self.runs = np.empty((len(queries), len(RUN_FEATURES)), dtype=np.float32)
        pairs, seconds, filled = [], [], 0
        for rows, found in graphs.runs(queries, times):
            self._first[rows] = filled + found.busy.shape[1] * np.arange(len(rows))
            filled += found.busy.size
            pairs.append(found.pairs.reshape(-1, len(PAIR_FEATURES)).astype(np.float32))
            both = np.stack([found.busy.ravel(), found.launch.ravel()], axis=1)
            seconds.append(both.astype(np.float32))
            self.runs[rows] = found.runs
        self._pairs, self._seconds = np.concatenate(pairs), np.concatenate(seconds)

    def batches(
        self, rows: Places, graphs_a_batch: int, order: np.random.Generator | None = None
    ) -> Iterator[Batch]:
        """Batches that hold these runs, each once; graphs in a random order where one is given."""
        groups = _alike(self._of, rows)
        turns = np.arange(len(groups)) if order is None else order.permutation(len(groups))
        for start in range(0, len(groups), graphs_a_batch):
            yield self._batch([groups[i] for i in turns[start : start + graphs_a_batch]])

    def count(self, rows: Places, graphs_a_batch: int) -> int:
        """Batches that `batches` makes of these runs."""
        return -(-len(np.unique(self._of[rows])) // graphs_a_batch)

    def _batch(self, groups: Sequence[Places]) -> Batch:
        rows = np.concatenate(groups)
        numbers = np.array([self._of[group[0]] for group in groups])
        sizes = self._sizes[numbers]
        start = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        graphs = [self._graphs[number] for number in numbers]
        place = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
        lengths = sizes[place]
        at = _ranges(self._first[rows], lengths)
        return Batch(
            rows=rows,
            root=np.concatenate([g.root for g in graphs]),
            features=np.concatenate([g.features for g in graphs]),
            before=np.concatenate(
                [g.before + s for g, s in zip(graphs, start, strict=True)], axis=1
            ),
            after=np.concatenate([g.after + s for g, s in zip(graphs, start, strict=True)], axis=1),
            node=_ranges(start[place], lengths),
            run=np.repeat(np.arange(len(rows)), lengths),
            pairs=self._pairs[at],
            seconds=self._seconds[at],
            runs=self.runs[rows],
        )

    @cached_property
    def _sizes(self) -> Places:
        return np.array([len(graph) for graph in self._graphs], dtype=np.intp)


def _alike(of: Places, rows: Places) -> list[Places]:
    """Rows by the graph they run."""
    rows = rows[np.argsort(of[rows], kind="stable")]
    return np.split(rows, np.flatnonzero(np.diff(of[rows])) + 1)


def _ranges(starts: Places, lengths: Places) -> Places:
    """start, start + 1, ... of each length, end to end."""
    ends = np.cumsum(lengths)
    return np.asarray(np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths))
