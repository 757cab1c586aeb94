"""Results by operator graph, of which as many are kept as have so many operators together."""

from collections.abc import Callable
from functools import wraps
from typing import Final, TypeVar, TypeVarTuple

from forerun.data.graph import OperatorGraph
from forerun.features.recent import Recent

OPERATORS_KEPT: Final = 100_000
"""Operators of the graphs whose results one cache keeps: 250 vision networks, or three of the
largest graphs. A result holds its graph, some 0.8 kB per operator that caches share."""
Rest = TypeVarTuple("Rest")
Value = TypeVar("Value")


class GraphKey:
    """A graph as a cache key: by digest, so that equal graphs share one entry."""

    __slots__ = ("graph",)

    def __init__(self, graph: OperatorGraph) -> None:
        self.graph = graph

    def __hash__(self) -> int:
        return hash(self.graph.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GraphKey) and self.graph.digest == other.graph.digest


def kept_by_graph(
    operators: int = OPERATORS_KEPT,
) -> Callable[[Callable[[GraphKey, *Rest], Value]], Callable[[GraphKey, *Rest], Value]]:
    """Decorate a function of a graph and further hashable arguments with a cache of its results.

    The results that were used longest ago are dropped, so that memory does not depend on how large
    the graphs are. Several threads may call the function.

    Args:
        operators: largest number of operators in the graphs of all results that are kept; a result
            counts with each of its graph's operators, and the latest one is always kept.
    """

    def decorate(
        function: Callable[[GraphKey, *Rest], Value],
    ) -> Callable[[GraphKey, *Rest], Value]:
        results: Recent[tuple[object, ...], tuple[Value]] = Recent(operators)

        @wraps(function)
        def kept(key: GraphKey, *rest: *Rest) -> Value:
            found = results.get((key, *rest))
            if found is None:
                found = (function(key, *rest),)
                results.put((key, *rest), found, max(1, len(key.graph)))
            return found[0]

        return kept

    return decorate
