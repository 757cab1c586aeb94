"""Caches of recent results, by key and by operator graph."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import wraps
from threading import Lock
from typing import Final, Generic, TypeVar, TypeVarTuple

from forerun.data.graph import OperatorGraph

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """A thread-safe least-recently-used cache with a limit on total weight.

    Args:
        most: maximum total weight; beyond it, the least recently used values are dropped. With
            weights of 1, this is the number of values.
    """

    def __init__(self, most: int) -> None:
        self._most, self._weight, self._lock = most, 0, Lock()
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        """The value of a key; None if it is not cached."""
        with self._lock:
            kept = self._values.get(key)
            if kept is None:
                return None
            self._values.move_to_end(key)
            return kept[0]

    def put(self, key: Key, value: Value, weight: int = 1) -> None:
        """Store a value, replacing any earlier value of its key.

        A value heavier than the limit is still stored, unless the limit is 0.
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
        """The value of each key, computing the missing ones.

        Args:
            keys: n distinct keys.
            compute: positions of the missing keys -> their values; called at most once.
        """
        values = {place: self.get(key) for place, key in enumerate(keys)}
        missing = [place for place, value in values.items() if value is None]
        new = dict(zip(missing, compute(missing), strict=True)) if missing else {}
        for place, value in new.items():
            self.put(keys[place], value)
        return [new[place] if stored is None else stored for place, stored in values.items()]


OPERATORS_KEPT: Final = 100_000
"""Maximum operators in the graphs of a cache's results: 250 vision networks, or three of the
largest graphs. A result holds its graph, about 0.8 kB per operator, which caches share."""
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
    """Decorator that caches a function of a graph and further hashable arguments.

    The least recently used results are dropped, so memory does not depend on the size of the
    graphs. The function may be called from several threads.

    Args:
        operators: maximum number of operators in the graphs of all cached results; a result counts
            once per operator of its graph, and the latest one is always kept.
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
