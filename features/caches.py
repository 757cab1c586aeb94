"""The most recently used results of a computation: by key, and by operator graph."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import wraps
from threading import Lock
from typing import Final, Generic, TypeVar, TypeVarTuple

from forerun.data.graph import OperatorGraph

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """Values by key, up to a total weight; several threads may use them.

    Args:
        most: total weight from which on the values that were used longest ago are dropped; their
            number, where each has the weight 1.
    """

    def __init__(self, most: int) -> None:
        self._most, self._weight, self._lock = most, 0, Lock()
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        """The value of a key; None when there is none."""
        with self._lock:
            kept = self._values.get(key)
            if kept is None:
                return None
            self._values.move_to_end(key)
            return kept[0]

    def put(self, key: Key, value: Value, weight: int = 1) -> None:
        """Keep a value, in place of an earlier one of that key.

        It is kept even where it alone is heavier than all may be together, unless that is 0.
        """
        with self._lock:
            _, before = self._values.pop(key, (None, 0))
            self._values[key] = value, weight
            self._weight += weight - before
            while self._weight > self._most and len(self._values) > min(1, self._most):
                _, (_, dropped) = self._values.popitem(last=False)
                self._weight -= dropped

    def of_each(
        self, keys: Sequence[Key], compute: Callable[[list[int]], Sequence[Value]]
    ) -> list[Value]:
        """The value of each key.

        Args:
            keys: n distinct keys.
            compute: positions among the keys whose value is not known -> their values; it is called
                at most once.
        """
        values = {place: self.get(key) for place, key in enumerate(keys)}
        missing = [place for place, value in values.items() if value is None]
        new = dict(zip(missing, compute(missing), strict=True)) if missing else {}
        for place, value in new.items():
            self.put(keys[place], value)
        return [new[place] if own is None else own for place, own in values.items()]


OPERATORS_KEPT: Final = 100_000
"""Operators of the graphs whose results one cache keeps: 250 vision networks, or three of the
largest graphs. A result holds its graph, some 0.8 kB per operator that caches share."""
Rest = TypeVarTuple("Rest")


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
