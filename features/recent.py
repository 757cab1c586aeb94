"""The most recently used results of a computation, by key."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """Values by key, at most so many; several threads may use them.

    Args:
        most: number of values from which on the one that was used longest ago is dropped.
    """

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, Lock()
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        """The value of a key; None when there is none."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: Key, value: Value) -> None:
        """Keep a value, in place of an earlier one of that key."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)

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
