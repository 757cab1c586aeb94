"""`CachingAllocator.run` for many runs at once that make equal requests of different sizes.

All runs take one step at a time: an event is a few operations on arrays with a column per run. A
free block is a number whose order is that of the allocator's search: the pool, the size, the
address, all in units of `ROUND` bytes.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.features.memory.allocator import (
    GRANULE,
    LARGE_POOL,
    LARGE_REQUEST,
    LARGE_SEGMENT,
    ROUND,
    SMALL_REQUEST,
    SMALL_SEGMENT,
    CachingAllocator,
    Peaks,
)

Integers = NDArray[np.int64]
FEWEST = 64
"""Runs from which on they are faster together than one after another: six times for 1,000 runs of
ResNet-50. Training leaves so many free blocks that little is gained."""
_BITS = 31
_LOW = (1 << _BITS) - 1
_LARGE = 1 << 2 * _BITS
"""Bits of a size and of an address, and the bit of the large pool."""
_NONE = np.iinfo(np.int64).max


def peaks_of_each(events: Sequence[int], sizes: Integers, begun: CachingAllocator) -> list[Peaks]:
    """Peaks of n runs that go on from one state of an allocator whose segments do not expand.

    Args:
        events: as for `CachingAllocator.run`.
        sizes: (tensors, n) bytes of each tensor in each run.
        begun: the state; it is not changed.
    """
    empty = (sizes == 0).any(axis=1)
    if sizes.shape[1] < FEWEST or (sizes[empty] > 0).any():
        return [begun.copy().run(events, own) for own in sizes.T.tolist()]
    state = _Columns(begun, -(-sizes // ROUND))
    for event in events:
        if not empty[event if event >= 0 else ~event]:
            state.allocate(event) if event >= 0 else state.free(~event)
    found = np.stack([state.most, state.reserved], axis=1) * ROUND
    # Beyond that, an address may have taken the bits of a size.
    beyond = np.flatnonzero(state.reserved > _LOW // 2)
    runs = [Peaks(live, reserved) for live, reserved in found.tolist()]
    for run in beyond.tolist():
        runs[run] = begun.copy().run(events, sizes[:, run].tolist())
    return runs


class _Columns:
    """n allocators, in units of `ROUND` bytes; addresses hold the bit of the pool.

    Attributes:
        most, reserved: (n,) peaks so far.
    """

    def __init__(self, begun: CachingAllocator, needs: Integers) -> None:
        n = needs.shape[1]
        self._needs, self._columns = needs, np.arange(n)
        free = [(size // ROUND, _address(start)) for pool in begun.free for size, start in pool]
        # Rows are places for free blocks: the key that orders them, first and last address.
        self._key, self._first, self._last = np.full((3, max(8, 2 * len(free)), n), -1)
        for place, (size, start) in enumerate(free):
            self._key[place] = start & _LARGE | size << _BITS | start & _LOW
            self._first[place], self._last[place] = start, start + size
        self._blocks = {
            tensor: (np.full(n, length // ROUND), np.full(n, _address(start)))
            for tensor, (length, start) in begun.blocks.items()
        }
        self._ends = [np.full(n, _address(end)) for end in begun.ends]
        self._live, self.reserved = (
            np.full(n, begun.live // ROUND),
            np.full(n, begun.reserved // ROUND),
        )
        self.most = np.full(n, begun.most // ROUND)

    def allocate(self, tensor: int) -> None:
        """A block from the smallest free one that fits, else from a new segment."""
        need = self._needs[tensor]
        small = need <= SMALL_REQUEST // ROUND
        pool = np.where(small, 0, _LARGE)
        key = self._key
        best = np.where(key >= (pool | need << _BITS), key, _NONE).min(axis=0)
        found = (best < _LARGE) | ~small & (best < _NONE)
        start = pool | best & _LOW
        length = best >> _BITS & _LOW
        if not found.all():
            new_start, new_length = self._grown(need, small, ~found)
            start, length = np.where(found, start, new_start), np.where(found, length, new_length)
        rest = length - need
        split = np.where(small, rest > 0, rest > SMALL_REQUEST // ROUND)
        part = start + need
        own = key == np.where(found, best, _NONE)
        np.copyto(key, np.where(split, pool | rest << _BITS | part & _LOW, -1), where=own)
        np.copyto(self._first, np.where(split, part, -1), where=own)
        np.copyto(self._last, np.where(split, part + rest, -1), where=own)
        more = np.flatnonzero(split & ~found)
        if len(more):
            self._keep(more, part[more], (part + rest)[more])
        length = np.where(split, need, length)
        self._live += length
        np.maximum(self.most, self._live, out=self.most)
        self._blocks[tensor] = length, start

    def free(self, tensor: int) -> None:
        """Free a block and merge it with free neighbours."""
        length, start = self._blocks.pop(tensor)
        self._live -= length
        end = start + length
        behind, before = self._first == end, self._last == start
        end = np.maximum(end, np.where(behind, self._last, -1).max(axis=0))
        start = np.minimum(start, np.where(before, self._first, _NONE).min(axis=0))
        behind |= before
        for array in (self._key, self._first, self._last):
            array[behind] = -1
        self._keep(self._columns, start, end)

    def _keep(self, columns: Integers, start: Integers, end: Integers) -> None:
        """Put a free block into a free place of each of these columns."""
        while True:
            vacant = self._key[:, columns] < 0
            place = vacant.argmax(axis=0)
            if vacant[place, np.arange(len(columns))].all():
                break
            self._key, self._first, self._last = (
                np.concatenate([array, np.full_like(array, -1)])
                for array in (self._key, self._first, self._last)
            )
        self._key[place, columns] = start & _LARGE | end - start << _BITS | start & _LOW
        self._first[place, columns], self._last[place, columns] = start, end

    def _grown(
        self, need: Integers, small: NDArray[np.bool_], where: NDArray[np.bool_]
    ) -> tuple[Integers, Integers]:
        """Address and length of a new segment in each of these columns."""
        granule = GRANULE // ROUND
        whole = -(-need // granule) * granule
        large = np.where(need < LARGE_REQUEST // ROUND, LARGE_SEGMENT // ROUND, whole)
        taken = np.where(small, SMALL_SEGMENT // ROUND, large)
        start = np.where(small, *self._ends)
        for end, own in zip(self._ends, (small & where, ~small & where), strict=True):
            end[own] += taken[own] + 1
        self.reserved[where] += taken[where]
        return start, taken


def _address(start: int) -> int:
    """An address in units, with the bit of its pool."""
    return start // ROUND if start < LARGE_POOL else _LARGE | (start - LARGE_POOL) // ROUND
