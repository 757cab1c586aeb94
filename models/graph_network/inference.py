"""Inference of an exported graph network by onnxruntime on one thread, with cached encodings."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.data.columns import Column, Matrix, Positions
from forerun.data.graph import OperatorGraph
from forerun.data.query import Query
from forerun.features.graph_cache import GraphKey
from forerun.features.lowering import LoweringMode
from forerun.features.networks.features import chip_of
from forerun.features.networks.kernel_graph import KernelGraph, kernel_graphs
from forerun.models.graph_network.encoder import GRAPH_INPUTS
from forerun.models.graph_network.inputs import Runs, runs_of
from forerun.models.networks.additive_model import AdditiveLatencyModel
from forerun.models.networks.features import FEW_GRAPHS, rows_by_lowering
from forerun.models.neural import onnx_session

ENCODINGS_KEPT = 256
MOST_PAIRS = 2_000
"""Runs times kernels in one call of the head, so that its activations fit into a processor's
cache."""


class Encoded(NamedTuple):
    """A kernel graph of n kernels, and its states from the encoder, (members, n, head)."""

    graph: KernelGraph
    states: NDArray[np.float32]


class Answered(NamedTuple):
    """Outputs of the head for q runs of one graph of n kernels.

    Attributes:
        log_seconds: (q,) logarithm of the seconds, mean over members.
        terms: (q, n) seconds of each kernel before the correction of the whole, mean over members.
        runs: inputs of the head.
        kind: (n,) kinds of the kernels.
    """

    log_seconds: Column
    terms: Matrix
    runs: Runs
    kind: Positions


class GraphAnswers:
    """Encoder and head of a graph network in onnxruntime sessions.

    Args:
        encoder, head: ONNX files from `forerun.models.graph_network.encoder.export`.
        times: the additive model.
    """

    def __init__(self, encoder: bytes, head: bytes, times: AdditiveLatencyModel) -> None:
        self._encoder, self._head = onnx_session(encoder), onnx_session(head)
        self._times = times
        self._cached = lru_cache(maxsize=ENCODINGS_KEPT)(self._of_key)

    def encoded(self, graph: OperatorGraph, mode: LoweringMode, keep: bool = True) -> Encoded:
        """The states of a network's kernels.

        Args:
            graph: the network.
            mode: how it is lowered to kernels.
            keep: whether to cache the result; the `ENCODINGS_KEPT` latest are kept.
        """
        if keep:
            return self._cached(GraphKey(graph), mode)
        return self.encode(next(kernel_graphs(graph, (mode,))))

    def encode(self, graph: KernelGraph) -> Encoded:
        """Run the encoder on one graph, so that its states do not depend on other graphs."""
        inputs = (graph.root, graph.features, graph.before, graph.after)
        states = self._encoder.run(None, dict(zip(GRAPH_INPUTS, inputs, strict=True)))[0]
        return Encoded(graph, states)

    def answer(self, encoded: Encoded, queries: Sequence[Query]) -> Answered:
        """Run the head on q runs of one graph.

        Args:
            encoded: the graph and its states.
            queries: q networks that are lowered to this graph.

        Raises:
            UnknownPrecision: a device's sheet has no peak for a query's precision.
        """
        chips = [chip_of(query.device, query.run.precision) for query in queries]
        runs = runs_of(encoded.graph, queries, chips, [self._times] * len(queries))
        states = encoded.states.astype(np.float64)
        kernels = len(encoded.graph)
        step = max(1, MOST_PAIRS // max(1, kernels))
        parts = (slice(start, start + step) for start in range(0, len(queries), step))
        outputs = [self._head.run(None, {"states": states, **runs.inputs(p)}) for p in parts]
        log_seconds, terms = (np.concatenate(column) for column in zip(*outputs, strict=True))
        kind = encoded.graph.kernels.kind
        return Answered(log_seconds, terms.reshape(-1, kernels), runs, kind)

    def answers(self, queries: Sequence[Query]) -> Iterator[tuple[Sequence[int], Answered]]:
        """For each graph, the positions of the queries that run it, and the outputs for them.

        Raises:
            UnknownPrecision: a device's sheet has no peak for a query's precision.
        """
        by_graph = rows_by_lowering(queries)
        keep = sum(len(modes) for _, modes in by_graph) <= FEW_GRAPHS
        for graph, modes in by_graph:
            for mode, rows in modes.items():
                encoded = self.encoded(graph, mode, keep)
                yield rows, self.answer(encoded, [queries[row] for row in rows])

    def _of_key(self, key: GraphKey, mode: LoweringMode) -> Encoded:
        return self.encode(next(kernel_graphs(key.graph, (mode,))))
