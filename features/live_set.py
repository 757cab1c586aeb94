"""Largest live set of an inference pass: which activations exist at once, at any batch size.

A tensor lives from the operator that writes it to the last one that reads it (outputs of the
network to the end); an operator's inputs and outputs live together while it runs. Inputs of the
network live throughout: whoever calls it holds them. In-place operators are not assumed, and an
operator that runs several times (`repeat`) reuses its memory.
"""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from forerun.data.graph import OperatorGraph, Shape
from forerun.features.query_table import GRAPHS_KEPT, GraphKey, graph_table

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LiveSet:
    """Live activation elements while each of n operators runs.

    Attributes:
        constant: (n,) elements that the batch size leaves alone.
        batched: (n,) elements at the graph's own batch size that grow with it.
    """

    constant: Column
    batched: Column

    def peak_elements(self, factor: float) -> float:
        """Most elements alive at once with `factor` times as many samples; 0 without operators."""
        if not len(self.constant):
            return 0.0
        return float((self.constant + factor * self.batched).max())


def live_set(graph: OperatorGraph) -> LiveSet:
    """The live set of a forward graph, kept for the graphs asked last."""
    return _kept(GraphKey(graph))


@lru_cache(maxsize=GRAPHS_KEPT)
def _kept(key: GraphKey) -> LiveSet:
    return _live_set(key.graph)


def _live_set(graph: OperatorGraph) -> LiveSet:
    table, n = graph_table(graph), len(graph)
    last_read = np.full(n, -1)
    for place, op in enumerate(graph.operators):
        for source in op.inputs:
            last_read[source] = place
    # What nobody reads is an output of the network.
    last_read[last_read < 0] = n - 1
    return LiveSet(
        _alive(table.out_elements, last_read, ~table.batched) + _fed_elements(graph, batched=False),
        _alive(table.out_elements, last_read, table.batched) + _fed_elements(graph, batched=True),
    )


def _alive(written: Column, last_read: NDArray[np.intp], mine: NDArray[np.bool_]) -> Column:
    """Running sum of what is written minus what was read for the last time before."""
    change = np.zeros(len(written) + 1)
    change[:-1] += np.where(mine, written, 0.0)
    np.subtract.at(change, last_read + 1, np.where(mine, written, 0.0))
    alive: Column = np.cumsum(change)[:-1]
    return alive


def _fed_elements(graph: OperatorGraph, *, batched: bool) -> float:
    """Elements of the network's inputs: what operators without predecessors read.

    Several operators that read tensors of one shape are taken to read the same tensor.
    """
    fed: Counter[Shape] = Counter()
    for op in graph.operators:
        if not op.inputs and op.batched == batched:
            fed |= Counter(op.input_shapes)
    return float(sum(prod(shape) * times for shape, times in fed.items()))
