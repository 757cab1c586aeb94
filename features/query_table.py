"""The operator table of a query's workload, at its batch size."""

from functools import lru_cache

from forerun.data.graph import OperatorGraph
from forerun.data.workload import Kernel, Workload
from forerun.features.backward import training_table
from forerun.features.operator_table import OperatorTable

GRAPHS_KEPT = 4096


def query_table(workload: Workload) -> OperatorTable:
    """Operators that one run of a workload makes, at its batch size.

    A training query on a forward graph gets its backward pass and optimizer step by
    `forerun.features.backward`.
    """
    if isinstance(workload, Kernel):
        return OperatorTable.of([workload.operator])
    graph = workload.graph
    table = graph_table(graph).at_batch(workload.batch_size / graph.batch_size)
    if workload.phase == "training" and not graph.training:
        return training_table(table)
    return table


def graph_table(graph: OperatorGraph) -> OperatorTable:
    """The table of a graph at its own batch size, kept for the graphs asked last."""
    return _kept(_ById(graph))


class _ById:
    """A graph as a cache key: by digest, so that equal graphs share one table."""

    __slots__ = ("graph",)

    def __init__(self, graph: OperatorGraph) -> None:
        self.graph = graph

    def __hash__(self) -> int:
        return hash(self.graph.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and self.graph.digest == other.graph.digest


@lru_cache(maxsize=GRAPHS_KEPT)
def _kept(key: _ById) -> OperatorTable:
    return OperatorTable.of_graph(key.graph)
