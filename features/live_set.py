"""Largest live set of an inference pass: which activations exist at once, at any batch size.

A tensor lives from the operator that writes it to the last one that reads it (outputs of the
network to the end); an operator's inputs and outputs live together while it runs. In-place
operators are not assumed.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from forerun.data.graph import OperatorGraph
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
    last_read = np.arange(n)
    read = np.zeros(n, dtype=np.bool_)
    fed_from_outside = np.zeros(n)
    for place, op in enumerate(graph.operators):
        for source in op.inputs:
            last_read[source] = place
            read[source] = True
        if not op.inputs:
            fed_from_outside[place] = table.in_elements[place]
    # What nobody reads is an output of the network.
    last_read[~read] = n - 1
    return LiveSet(
        _alive(table.out_elements, last_read, fed_from_outside, ~table.batched),
        _alive(table.out_elements, last_read, fed_from_outside, table.batched),
    )


def _alive(
    written: Column, last_read: NDArray[np.intp], outside: Column, mine: NDArray[np.bool_]
) -> Column:
    """Running sum of what is written minus what was read for the last time before."""
    change = np.zeros(len(written) + 1)
    change[:-1] += np.where(mine, written, 0.0)
    np.subtract.at(change, last_read + 1, np.where(mine, written, 0.0))
    alive: Column = np.cumsum(change)[:-1]
    return alive + np.where(mine, outside, 0.0)
