"""Requests for device memory, in the order in which a pass or a training step makes them."""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]

CATEGORIES: Final = ("weights", "gradients", "optimizer", "activations", "cache")
WEIGHTS, GRADIENTS, OPTIMIZER, ACTIVATIONS, CACHE = range(5)

BEFORE, WITHIN, AFTER = range(3)
"""Position of a tensor: before the network's repeated blocks, within them, after them."""


class Place(NamedTuple):
    """How a tensor is distributed over several devices that share a network.

    Attributes:
        divided: whether tensor parallelism divides it.
        stage: `BEFORE`, `WITHIN` or `AFTER` the repeated blocks.
    """

    divided: bool = False
    stage: int = WITHIN


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests for memory in order.

    Attributes:
        events: t >= 0 allocates tensor t, ~t frees it.
        constant: (tensors,) bytes that do not depend on the batch size.
        batched: (tensors,) bytes at the graph's own batch size that grow with it.
        category: (tensors,) positions in `CATEGORIES`.
        divided: (tensors,) whether tensor parallelism divides a tensor.
        stage: (tensors,) `BEFORE`, `WITHIN` or `AFTER`.
    """

    events: NDArray[np.intp]
    constant: Column
    batched: Column
    category: NDArray[np.intp]
    divided: NDArray[np.bool_]
    stage: NDArray[np.intp]

    def sizes(self, factor: float, shares: Column | None = None) -> Column:
        """Whole bytes of each tensor with `factor` times as many samples.

        Args:
            factor: batch size over the graph's own.
            shares: (tensors,) part of each that one device holds; all of it when None.
        """
        size = self.constant + factor * self.batched
        if shares is not None:
            size = size * shares
        whole: Column = np.ceil(size - 1e-6)
        return whole

    def live(self, sizes: Column) -> Column:
        """Bytes alive after each event."""
        alive: Column = np.cumsum(self._changes(sizes))
        return alive

    def peak_parts(self, sizes: Column) -> dict[str, float]:
        """Bytes of each category when most bytes are live; `cache` only where there is one."""
        totals: Column = np.zeros(len(CATEGORIES))
        if len(self.events):
            changes = self._changes(sizes)
            until = int(np.argmax(np.cumsum(changes))) + 1
            tensors = np.where(self.events < 0, ~self.events, self.events)[:until]
            counted = np.bincount(self.category[tensors], changes[:until], len(CATEGORIES))
            totals = counted.astype(np.float64)
        parts = dict(zip(CATEGORIES, totals.tolist(), strict=True))
        if not (self.category == CACHE).any():
            del parts[CATEGORIES[CACHE]]
        return parts

    def _changes(self, sizes: Column) -> Column:
        freed = self.events < 0
        changes: Column = sizes[np.where(freed, ~self.events, self.events)]
        return np.where(freed, -changes, changes)


class RequestLog:
    """A log of requests; a tensor is freed when its last holder releases it.

    Attributes:
        place: place of the tensors that are made from now on.
    """

    def __init__(self) -> None:
        self.items: list[float] = []
        self.holders: list[int] = []
        self.place = Place()
        self._events: list[int] = []
        self._constant: list[float] = []
        self._batched: list[float] = []
        self._category: list[int] = []
        self._places: list[Place] = []

    def new(self, elements: float, item_bytes: float, category: int, batched: bool) -> int:
        """Request a new tensor, with one holder."""
        size = elements * item_bytes
        self._constant.append(0.0 if batched else size)
        self._batched.append(size if batched else 0.0)
        self._category.append(category)
        self._places.append(self.place)
        self.items.append(item_bytes)
        self.holders.append(1)
        self._events.append(len(self.items) - 1)
        return len(self.items) - 1

    def like(self, tensor: int, item_bytes: float | None = None) -> int:
        """A tensor with as many elements, of the same category and in the same place."""
        elements = self.bytes_of(tensor) / self.items[tensor]
        item = self.items[tensor] if item_bytes is None else item_bytes
        made = self.new(elements, item, self._category[tensor], self._batched[tensor] > 0)
        self._places[made] = self._places[tensor]
        return made

    def bytes_of(self, tensor: int) -> float:
        """Bytes at the graph's own batch size."""
        return self._constant[tensor] + self._batched[tensor]

    def hold(self, tensor: int) -> int:
        """Count one more holder of a tensor, which is returned."""
        self.holders[tensor] += 1
        return tensor

    def release(self, *tensors: int) -> None:
        """Count one holder less of each tensor; a tensor without holders is freed."""
        for tensor in tensors:
            self.holders[tensor] -= 1
            if not self.holders[tensor]:
                self._events.append(~tensor)

    def pass_through(self, elements: float, items: tuple[float, ...], batched: bool) -> int:
        """A chain of results, each of which frees the one before.

        Args:
            elements: elements of each result.
            items: bytes per element of each, in order.
            batched: whether they grow with the batch.

        Returns:
            The last one, with one holder.
        """
        last = self.new(elements, items[0], ACTIVATIONS, batched)
        for item in items[1:]:
            made = self.new(elements, item, ACTIVATIONS, batched)
            self.release(last)
            last = made
        return last

    def requests(self) -> Requests:
        """The requests that were logged."""
        return Requests(
            np.array(self._events, dtype=np.intp),
            np.array(self._constant),
            np.array(self._batched),
            np.array(self._category, dtype=np.intp),
            np.array([place.divided for place in self._places], dtype=np.bool_),
            np.array([place.stage for place in self._places], dtype=np.intp),
        )
