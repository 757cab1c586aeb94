"""A model of PyTorch's CUDA caching allocator: the memory it reserves for a sequence of requests.

Requests are those of a forward pass or a training step, in order. Rules of
c10/cuda/CUDACachingAllocator.cpp: sizes round up to 512 B; requests of up to 1 MiB come
from segments of 2 MiB, those under 10 MiB from segments of 20 MiB, larger ones from segments
rounded up to 2 MiB; the smallest free block that fits is split, adjacent free blocks are merged,
and segments are never released. The model has one stream and no memory limit.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.data.columns import Column
from forerun.features.deadline import check

CATEGORIES: Final = ("weights", "gradients", "optimizer", "activations", "cache")
WEIGHTS, GRADIENTS, OPTIMIZER, ACTIVATIONS, CACHE = range(5)

BEFORE, WITHIN, AFTER = range(3)
"""Position of a tensor relative to the network's repeated blocks."""


class Place(NamedTuple):
    """How a tensor is distributed over several devices that run one network.

    Attributes:
        divided: whether tensor parallelism divides it.
        stage: `BEFORE`, `WITHIN` or `AFTER` the repeated blocks.
    """

    divided: bool = False
    stage: int = WITHIN


@dataclass(frozen=True, slots=True)
class Requests:
    """Memory requests in order.

    Attributes:
        events: t >= 0 allocates tensor t, ~t frees it.
        constant: (tensors,) batch-independent bytes.
        batched: (tensors,) bytes that grow with the batch, at the graph's own batch size.
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
            shares: (tensors,) share of each that one device holds; the whole tensor if None.
        """
        size = self.constant + factor * self.batched
        if shares is not None:
            size = size * shares
        whole: Column = np.ceil(size - 1e-6)
        return whole

    def live(self, sizes: Column) -> Column:
        """Live bytes after each event."""
        alive: Column = np.cumsum(self._changes(sizes))
        return alive

    def peak_parts(self, sizes: Column) -> dict[str, float]:
        """Bytes per category at the peak of live bytes; `cache` only where there is one."""
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
    """A log of requests with reference counting: a tensor is freed when its last holder releases
    it.

    Attributes:
        place: place of the tensors requested from now on.
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
        """Request a new tensor with one holder."""
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
        """Request a tensor with as many elements, of the same category and in the same place."""
        elements = self.bytes_of(tensor) / self.items[tensor]
        item = self.items[tensor] if item_bytes is None else item_bytes
        made = self.new(elements, item, self._category[tensor], self._batched[tensor] > 0)
        self._places[made] = self._places[tensor]
        return made

    def bytes_of(self, tensor: int) -> float:
        """Bytes of a tensor at the graph's own batch size."""
        return self._constant[tensor] + self._batched[tensor]

    def hold(self, tensor: int) -> int:
        """Add a holder to a tensor and return the tensor."""
        self.holders[tensor] += 1
        return tensor

    def release(self, *tensors: int) -> None:
        """Remove a holder from each tensor; tensors without holders are freed."""
        for tensor in tensors:
            self.holders[tensor] -= 1
            if not self.holders[tensor]:
                self._events.append(~tensor)

    def pass_through(self, elements: float, items: tuple[float, ...], batched: bool) -> int:
        """Request a chain of results, each of which frees the previous one.

        Args:
            elements: elements of each result.
            items: bytes per element of each, in order.
            batched: whether they grow with the batch.

        Returns:
            The last result, with one holder.
        """
        last = self.new(elements, items[0], ACTIVATIONS, batched)
        for item in items[1:]:
            made = self.new(elements, item, ACTIVATIONS, batched)
            self.release(last)
            last = made
        return last

    def requests(self) -> Requests:
        """The logged requests."""
        return Requests(
            np.array(self._events, dtype=np.intp),
            np.array(self._constant),
            np.array(self._batched),
            np.array(self._category, dtype=np.intp),
            np.array([place.divided for place in self._places], dtype=np.bool_),
            np.array([place.stage for place in self._places], dtype=np.intp),
        )


ROUND = 512
SMALL_REQUEST, SMALL_SEGMENT = 1 << 20, 2 << 20
LARGE_REQUEST, LARGE_SEGMENT = 10 << 20, 20 << 20
GRANULE = 2 << 20
"""Bytes, as in the allocator's source: kMinBlockSize, kSmallSize, kSmallBuffer, kMinLargeAlloc,
kLargeBuffer and kRoundLarge."""
SERVED_AT_ONCE = 1024
"""Requests served between two checks of the deadline."""
LARGE_POOL = 1 << 60
"""First address of the large pool, above all addresses of the small one."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """Statistics of the allocator after a run, bytes.

    Attributes:
        live: peak of bytes in allocated blocks (`max_memory_allocated`).
        reserved: bytes of all segments at the end, which is their peak (`max_memory_reserved`).
    """

    live: int
    reserved: int


Block = tuple[int, int]
"""Size and address of a part of a segment; blocks sort as in the allocator's pools. It is a plain
tuple because creating a named one takes as long as the rest of a request."""


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
    """The allocator's state between requests, and the peaks so far.

    Attributes:
        blocks: tensor -> its block.
        free: sorted free blocks of the small and the large pool; addresses are unique.
        ends: end of the last segment of each pool; a gap follows every segment, so that blocks of
            different segments are never adjacent.
        live, most, reserved: bytes in `blocks` now and at their peak, and of all segments.
    """

    def __init__(self) -> None:
        self.blocks: dict[int, Block] = {}
        self.free: tuple[list[Block], list[Block]] = ([], [])
        self.ends = [0, LARGE_POOL]
        self.live = self.reserved = self.most = 0
        # Maps the start of each free block to its size, and its end to its start.
        self._size_at: dict[int, int] = {}
        self._before: dict[int, int] = {}

    def copy(self) -> "CachingAllocator":
        """An independent copy of the state."""
        other = CachingAllocator()
        small, large = self.free
        other.blocks, other.free, other.ends = (
            *(dict(self.blocks), (list(small), list(large))),
            list(self.ends),
        )
        other.live, other.reserved, other.most = self.live, self.reserved, self.most
        other._size_at, other._before = dict(self._size_at), dict(self._before)
        return other

    def run(self, events: Sequence[int], sizes: Sequence[int]) -> Peaks:
        """Serve requests and return the peaks since the start.

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
        """Serve requests; `needs` are the rounded sizes of all tensors."""
        blocks, size_at, before, live, most = (
            *(self.blocks, self._size_at, self._before),
            *(self.live, self.most),
        )
        small_pool, large_pool = self.free
        # Each pool with the smallest remainder that is split off a block.
        small = small_pool, ROUND
        large = large_pool, SMALL_REQUEST + 1
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
                # Merge the freed block with free neighbours. Inlined, because calling a function
                # would take a tenth of the run time.
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
        """A new segment for a rounded request."""
        which = 0 if need <= SMALL_REQUEST else 1
        end, taken = self.ends[which], segment_size(need)
        self.ends[which] = end + taken + ROUND
        self.reserved += taken
        return taken, end


def peaks(events: Sequence[int], sizes: Sequence[int]) -> Peaks:
    """Peaks of a run; arguments as for the method `run` of `CachingAllocator`."""
    return CachingAllocator().run(events, sizes)


Integers = NDArray[np.int64]
FEWEST = 64
"""Number of runs from which simulating them together is faster: six times for 1,000 runs of
ResNet-50. Training leaves so many free blocks that little is gained."""
_BITS = 31
_LOW = (1 << _BITS) - 1
_LARGE = 1 << 2 * _BITS
"""Bits of a size and of an address, and the bit that marks the large pool."""
_NONE = np.iinfo(np.int64).max


def peaks_of_each(events: Sequence[int], sizes: Integers, begun: CachingAllocator) -> list[Peaks]:
    """Peaks of n runs that all start from one allocator state.

    Args:
        events: as for `CachingAllocator.run`.
        sizes: (tensors, n) bytes of each tensor in each run.
        begun: the initial state; it is not changed.
    """
    empty = (sizes == 0).any(axis=1)
    if sizes.shape[1] < FEWEST or (sizes[empty] > 0).any():
        return [begun.copy().run(events, run_sizes) for run_sizes in sizes.T.tolist()]
    state = _Columns(begun, -(-sizes // ROUND))
    for event in events:
        if not empty[event if event >= 0 else ~event]:
            state.allocate(event) if event >= 0 else state.free(~event)
    found = np.stack([state.most, state.reserved], axis=1) * ROUND
    # Beyond that size, addresses may overflow into the bits of a block's size.
    beyond = np.flatnonzero(state.reserved > _LOW // 2)
    runs = [Peaks(live, reserved) for live, reserved in found.tolist()]
    for run in beyond.tolist():
        runs[run] = begun.copy().run(events, sizes[:, run].tolist())
    return runs


class _Columns:
    """n allocators in units of `ROUND` bytes; addresses include the bit of the pool.

    All runs advance together: an event is a few operations on arrays with one column per run. A
    free block is encoded as an integer that sorts in the allocator's search order: pool, size,
    address.

    Attributes:
        most, reserved: (n,) peaks so far.
    """

    def __init__(self, begun: CachingAllocator, needs: Integers) -> None:
        n = needs.shape[1]
        self._needs, self._columns = needs, np.arange(n)
        free = [(size // ROUND, _address(start)) for pool in begun.free for size, start in pool]
        # Rows are slots for free blocks: the sort key, first and last address.
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
        """Take the smallest free block that fits, else grow a new segment."""
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
        chosen = key == np.where(found, best, _NONE)
        np.copyto(key, np.where(split, pool | rest << _BITS | part & _LOW, -1), where=chosen)
        np.copyto(self._first, np.where(split, part, -1), where=chosen)
        np.copyto(self._last, np.where(split, part + rest, -1), where=chosen)
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
        """Store a free block in an empty slot of each of these columns."""
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
        for end, wanted in zip(self._ends, (small & where, ~small & where), strict=True):
            end[wanted] += taken[wanted] + 1
        self.reserved[where] += taken[where]
        return start, taken


def _address(start: int) -> int:
    """An address in units of `ROUND`, with the bit of its pool."""
    return start // ROUND if start < LARGE_POOL else _LARGE | (start - LARGE_POOL) // ROUND
