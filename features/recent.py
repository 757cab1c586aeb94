"""The most recently used results of a computation, by key."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from threading import Lock
from typing import Generic, TypeVar

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
