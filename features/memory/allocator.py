"""A model of PyTorch's CUDA caching allocator: the memory it reserves for a list of requests.

Rules of c10/cuda/CUDACachingAllocator.cpp: sizes round up to 512 B; requests of up to 1 MiB come
from segments of 2 MiB, those under 10 MiB from segments of 20 MiB, larger ones from segments
rounded up to 2 MiB; the smallest free block that fits is split, free neighbours are merged, and
segments are not released. One stream, no memory limit.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forerun.features.deadline import check

ROUND = 512
SMALL_REQUEST, SMALL_SEGMENT = 1 << 20, 2 << 20
LARGE_REQUEST, LARGE_SEGMENT = 10 << 20, 20 << 20
GRANULE = 2 << 20
"""Bytes, as in the allocator's source: kMinBlockSize, kSmallSize, kSmallBuffer, kMinLargeAlloc,
kLargeBuffer and kRoundLarge."""
SERVED_AT_ONCE = 1024
"""Requests between two checks of the deadline."""
LARGE_POOL = 1 << 60
"""First address of the large pool, above all of the small one."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """Statistics of the allocator after a run, bytes.

    Attributes:
        live: most bytes in blocks handed out (`max_memory_allocated`).
        reserved: bytes of all segments at the end, which is their peak (`max_memory_reserved`).
    """

    live: int
    reserved: int


Block = tuple[int, int]
"""Size and address of a part of a segment; blocks sort as in the allocator's pools. A plain tuple,
since creating a named one takes as long as the rest of a request."""


def rounded(size: int) -> int:
    """Bytes of the block that serves a request."""
    return -(-size // ROUND) * ROUND


def segment_size(size: int) -> int:
    """Bytes taken from the device for a rounded request that no free block can serve."""
    if size <= SMALL_REQUEST:
        return SMALL_SEGMENT
    if size < LARGE_REQUEST:
        return LARGE_SEGMENT
    return -(-size // GRANULE) * GRANULE


class CachingAllocator:
    """The allocator's state between requests, and the peaks reached.

    Args:
        expandable_segments: one growing segment per pool, as `PYTORCH_CUDA_ALLOC_CONF` offers; it
            grows by whole pages of 2 MiB (small pool) or 20 MiB (large pool).

    Attributes:
        blocks: tensor -> its block.
        free: free blocks of the small and of the large pool, sorted; addresses are unique.
        ends: end of the last segment of either pool; segments that do not grow have a gap behind
            them, so that blocks of two segments are never neighbours.
        live, most, reserved: bytes in `blocks` now and at their peak, and of all segments.
    """

    def __init__(self, *, expandable_segments: bool = False) -> None:
        self.blocks: dict[int, Block] = {}
        self.free: tuple[list[Block], list[Block]] = ([], [])
        self.ends = [0, LARGE_POOL]
        self.live = self.reserved = self.most = 0
        self._expandable = expandable_segments
        # By address of a free block: its size; by the address after one: its address.
        self._size_at: dict[int, int] = {}
        self._before: dict[int, int] = {}

    def copy(self) -> "CachingAllocator":
        """The same state, to go on from more than once."""
        other = CachingAllocator(expandable_segments=self._expandable)
        small, large = self.free
        other.blocks, other.free, other.ends = (
            *(dict(self.blocks), (list(small), list(large))),
            list(self.ends),
        )
        other.live, other.reserved, other.most = self.live, self.reserved, self.most
        other._size_at, other._before = dict(self._size_at), dict(self._before)
        return other

    def run(self, events: Sequence[int], sizes: Sequence[int]) -> Peaks:
        """Serve requests; returns the peaks since the start.

        Args:
            events: n >= 0 allocates tensor n, ~n frees it.
            sizes: bytes of each tensor; 0 requests no memory.
        """
        needs = (-(-np.asarray(sizes, dtype=np.int64) // ROUND) * ROUND).tolist()
        for first in range(0, len(events), SERVED_AT_ONCE):
            check()
            self._serve(events[first : first + SERVED_AT_ONCE], needs)
        return Peaks(self.most, self.reserved)

    def _serve(self, events: Sequence[int], needs: Sequence[int]) -> None:
        """Serve requests, where `needs` are the rounded sizes of all tensors."""
        blocks, size_at, before, live, most = (
            *(self.blocks, self._size_at, self._before),
            *(self.live, self.most),
        )
        small_pool, large_pool = self.free
        # Each pool with the least rest of a block that is split off.
        small = small_pool, ROUND
        large = large_pool, ROUND if self._expandable else SMALL_REQUEST + 1
        for event in events:
            if event >= 0:
                need = needs[event]
                if not need:
                    continue
                pool, least = large if need > SMALL_REQUEST else small
                place = bisect_left(pool, (need,))
                if place < len(pool):
                    length, start = pool.pop(place)
                    del size_at[start], before[start + length]
                else:
                    length, start = self._grown(need)
                rest = length - need
                if rest >= least:
                    length, part = need, start + need
                    insort(pool, (rest, part))
                    size_at[part] = rest
                    before[part + rest] = part
                live += length
                if live > most:
                    most = live
                blocks[event] = length, start
            elif needs[~event]:
                length, start = blocks.pop(~event)
                live -= length
                end = start + length
                # The freed block is joined to its free neighbours. This is no function, since
                # calling one takes a tenth of the time of a run.
                pool = small_pool if start < LARGE_POOL else large_pool
                if end in size_at:
                    behind = size_at.pop(end)
                    del pool[bisect_left(pool, (behind, end))]
                    end += behind
                if start in before:
                    start = before.pop(start)
                    del pool[bisect_left(pool, (size_at[start], start))]
                insort(pool, (end - start, start))
                size_at[start], before[end] = end - start, start
        self.live, self.most = live, most

    def _grown(self, need: int) -> Block:
        """New memory for a rounded request, joined to a free block before it where that may grow.

        Free blocks that are joined are no longer in their pool.
        """
        small = need <= SMALL_REQUEST
        which = 0 if small else 1
        end = self.ends[which]
        if not self._expandable:
            taken = segment_size(need)
            self.ends[which] = end + taken + ROUND
            self.reserved += taken
            return taken, end
        page, free = SMALL_SEGMENT if small else LARGE_SEGMENT, 0
        if end in self._before:
            start = self._before.pop(end)
            free = self._size_at.pop(start)
            pool = self.free[which]
            del pool[bisect_left(pool, (free, start))]
        taken = -(-(need - free) // page) * page
        self.ends[which] = end + taken
        self.reserved += taken
        return free + taken, end - free


def peaks(
    events: Sequence[int], sizes: Sequence[int], *, expandable_segments: bool = False
) -> Peaks:
    """Peaks of a run; arguments as for `CachingAllocator` and its method `run`."""
    return CachingAllocator(expandable_segments=expandable_segments).run(events, sizes)
