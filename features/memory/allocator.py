"""A model of PyTorch's CUDA caching allocator: the memory it reserves for a list of requests.

Rules of c10/cuda/CUDACachingAllocator.cpp: sizes round up to 512 B; requests of up to 1 MiB come
from segments of 2 MiB, those under 10 MiB from segments of 20 MiB, larger ones from segments
rounded up to 2 MiB; the smallest free block that fits is split, free neighbours are merged, and
segments are not released. One stream, no memory limit.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

from forerun.features.deadline import watched

ROUND = 512
SMALL_REQUEST, SMALL_SEGMENT = 1 << 20, 2 << 20
LARGE_REQUEST, LARGE_SEGMENT = 10 << 20, 20 << 20
GRANULE = 2 << 20
"""Bytes, as in the allocator's source: kMinBlockSize, kSmallSize, kSmallBuffer, kMinLargeAlloc,
kLargeBuffer and kRoundLarge."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """Statistics of the allocator after a run, bytes.

    Attributes:
        live: most bytes in blocks handed out (`max_memory_allocated`).
        reserved: bytes of all segments at the end, which is their peak (`max_memory_reserved`).
        requested: most bytes requested at a time, before rounding.
    """

    live: int
    reserved: int
    requested: int


Block = tuple[int, int]
"""Size and address of a part of a segment; blocks sort as in the allocator's pools. A plain tuple,
since creating a named one takes as long as the rest of a request."""


def rounded(size: int) -> int:
    """Bytes of the block that serves a request."""
    return max(ROUND, -(-size // ROUND) * ROUND)


def segment_size(size: int) -> int:
    """Bytes taken from the device for a rounded request that no free block can serve."""
    if size <= SMALL_REQUEST:
        return SMALL_SEGMENT
    if size < LARGE_REQUEST:
        return LARGE_SEGMENT
    return -(-size // GRANULE) * GRANULE


class CachingAllocator:
    """The allocator's state between requests.

    Args:
        expandable_segments: one growing segment per pool, as `PYTORCH_CUDA_ALLOC_CONF` offers; it
            grows by whole pages of 2 MiB (small pool) or 20 MiB (large pool).
    """

    def __init__(self, *, expandable_segments: bool = False) -> None:
        self.live = 0
        self.reserved = 0
        self._expandable = expandable_segments
        # Free blocks of the small and of the large pool, sorted; starts are unique addresses.
        self._free: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
        # By address of a free block: its size; by the address after one: its start.
        self._size_at: dict[int, int] = {}
        self._start_before: dict[int, int] = {}
        self._ends: set[int] = set()
        self._next = [0, 1 << 60]

    def allocate(self, size: int) -> Block:
        """A block of at least `size` bytes, from a new segment where no free block fits."""
        need = max(ROUND, -(-size // ROUND) * ROUND)
        small = need <= SMALL_REQUEST
        pool = self._free[0 if small else 1]
        place = bisect_left(pool, (need, -1))
        if place < len(pool):
            length, start = pool.pop(place)
            del self._size_at[start], self._start_before[start + length]
        else:
            start, length = self._grown(need, small)
        rest = length - need
        if rest >= ROUND if small or self._expandable else rest > SMALL_REQUEST:
            self._keep(pool, start + need, rest)
            length = need
        self.live += length
        return length, start

    def free(self, block: Block, *, small: bool) -> None:
        """Free a block and merge it with free neighbours in its segment.

        Args:
            block: what `allocate` returned.
            small: whether the request was of the small pool.
        """
        size, start = block
        self.live -= size
        pool = self._free[0 if small else 1]
        end = start + size
        if end in self._size_at and end not in self._ends:
            behind = self._size_at.pop(end)
            del self._start_before[end + behind]
            del pool[bisect_left(pool, (behind, end))]
            size += behind
        if start in self._start_before and start not in self._ends:
            before = self._start_before.pop(start)
            length = self._size_at.pop(before)
            del pool[bisect_left(pool, (length, before))]
            start, size = before, size + length
        self._keep(pool, start, size)

    def copy(self) -> "CachingAllocator":
        """The same state, to go on from more than once."""
        other = CachingAllocator(expandable_segments=self._expandable)
        other.live, other.reserved = self.live, self.reserved
        small, large = self._free
        other._free, other._next = (list(small), list(large)), list(self._next)
        other._size_at, other._start_before = dict(self._size_at), dict(self._start_before)
        other._ends = set(self._ends)
        return other

    def _keep(self, pool: list[tuple[int, int]], start: int, size: int) -> None:
        insort(pool, (size, start))
        self._size_at[start] = size
        self._start_before[start + size] = start

    def _grown(self, need: int, small: bool) -> tuple[int, int]:
        """Start and length of new memory, joined to a free block before it where that may grow."""
        which = 0 if small else 1
        end, free = self._next[which], 0
        if not self._expandable:
            taken = segment_size(need)
            self._ends.add(end + taken)
        else:
            page = SMALL_SEGMENT if small else LARGE_SEGMENT
            if end in self._start_before:
                start = self._start_before.pop(end)
                free = self._size_at.pop(start)
                pool = self._free[which]
                del pool[bisect_left(pool, (free, start))]
            taken = -(-(need - free) // page) * page
        self._next[which] = end + taken
        self.reserved += taken
        return end - free, free + taken


class Replay:
    """Replay of requests on an allocator, and the peaks reached.

    Args:
        expandable_segments: the option of `CachingAllocator`.
    """

    def __init__(self, *, expandable_segments: bool = False) -> None:
        self._device = CachingAllocator(expandable_segments=expandable_segments)
        self._blocks: dict[int, Block] = {}
        self._asked = self._live = self._requested = 0

    def copy(self) -> "Replay":
        """The same state, to go on from more than once."""
        other = Replay()
        other._device, other._blocks = self._device.copy(), dict(self._blocks)
        other._asked, other._live, other._requested = self._asked, self._live, self._requested
        return other

    def run(self, events: Sequence[int], sizes: Sequence[int]) -> Peaks:
        """Replay requests; returns the peaks since the start.

        Args:
            events: n >= 0 allocates tensor n, ~n frees it.
            sizes: bytes of each tensor; 0 requests no memory.
        """
        device, blocks, asked = self._device, self._blocks, self._asked
        live, requested = self._live, self._requested
        allocate, free = device.allocate, device.free
        for event in watched(events):
            if event >= 0:
                size = sizes[event]
                if size:
                    blocks[event] = allocate(size)
                    asked += size
                    if device.live > live:
                        live = device.live
                    if asked > requested:
                        requested = asked
            else:
                size = sizes[~event]
                if size:
                    free(blocks.pop(~event), small=size <= SMALL_REQUEST)
                    asked -= size
        self._asked, self._live, self._requested = asked, live, requested
        return Peaks(live, device.reserved, requested)


def peaks(
    events: Sequence[int], sizes: Sequence[int], *, expandable_segments: bool = False
) -> Peaks:
    """Peaks of a run; arguments as for `Replay` and `Replay.run`."""
    return Replay(expandable_segments=expandable_segments).run(events, sizes)
