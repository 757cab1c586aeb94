"""The allocator's rules: rounding, segments, splitting, coalescing; nothing overlaps."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.features.memory.allocator import (
    LARGE_SEGMENT,
    ROUND,
    SMALL_REQUEST,
    SMALL_SEGMENT,
    CachingAllocator,
    peaks,
    rounded,
    segment_size,
)

MIB = 2**20
SIZES = st.one_of(st.integers(1, 4096), st.integers(1, 3 * MIB), st.integers(1, 60 * MIB))


@st.composite
def runs(draw):
    """Sizes, and events that allocate each tensor once and free some of them."""
    sizes = draw(st.lists(SIZES, min_size=1, max_size=30))
    events, alive = [], []
    for tensor in range(len(sizes)):
        events.append(tensor)
        alive.append(tensor)
        while alive and draw(st.booleans()):
            events.append(~alive.pop(draw(st.integers(0, len(alive) - 1))))
    return events, sizes


@pytest.mark.parametrize(
    ("size", "block", "segment"),
    [
        (1, ROUND, SMALL_SEGMENT),
        (513, 2 * ROUND, SMALL_SEGMENT),
        (SMALL_REQUEST, SMALL_REQUEST, SMALL_SEGMENT),
        (SMALL_REQUEST + 1, SMALL_REQUEST + ROUND, LARGE_SEGMENT),
        (10 * MIB - 1, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 10 * MIB + ROUND, 12 * MIB),
        (100 * MIB, 100 * MIB, 100 * MIB),
    ],
)
def test_sizes_round_as_the_source_says(size, block, segment):
    assert rounded(size) == block
    assert segment_size(block) == segment
    assert peaks([0], [size]).reserved == segment


@given(runs())
def test_blocks_never_overlap_and_live_is_their_sum(run):
    events, sizes = run
    device, alive = CachingAllocator(), set()
    for event in events:
        device.run([event], sizes)
        alive ^= {event if event >= 0 else ~event}
        assert device.blocks.keys() == alive
        blocks = [*device.blocks.values(), *device.free[0], *device.free[1]]
        spans = sorted((start, start + size) for size, start in blocks)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
        assert all(size >= sizes[t] for t, (size, _) in device.blocks.items())
        assert device.live == sum(size for size, _ in device.blocks.values())
        assert device.reserved == sum(size for size, _ in blocks)


def test_free_neighbours_become_one_block_again():
    sizes = [6 * MIB, 6 * MIB, 6 * MIB, 18 * MIB]
    # Three blocks split one segment of 20 MiB; freed, they serve what asks for all of it.
    assert peaks([0, 1, 2, ~0, ~2, ~1, 3], sizes).reserved == LARGE_SEGMENT
    assert peaks([0, 1, 2, ~0, ~2, 3], sizes).reserved == LARGE_SEGMENT + 18 * MIB


def test_neighbouring_segments_stay_apart():
    assert peaks([0, 1, ~0, ~1, 2], [12 * MIB, 12 * MIB, 24 * MIB]).reserved == 48 * MIB


def test_the_smallest_block_that_fits_is_taken():
    sizes = [40 * MIB, 20 * MIB, 16 * MIB, 40 * MIB]
    assert peaks([0, 1, ~0, ~1, 2, 3], sizes).reserved == 60 * MIB


def test_a_large_block_is_not_split_for_a_small_rest():
    found = peaks([0, ~0, 1], [20 * MIB, 19 * MIB + SMALL_REQUEST // 2])
    assert found.live == 20 * MIB


@given(runs(), st.data())
def test_a_run_goes_on_from_a_copy_as_from_the_beginning(run, data):
    events, sizes = run
    cut = data.draw(st.integers(0, len(events)))
    begun = CachingAllocator()
    begun.run(events[:cut], sizes)
    whole = peaks(events, sizes)
    assert begun.copy().run(events[cut:], sizes) == whole
    assert begun.copy().run(events[cut:], sizes) == whole, "a copy leaves the original alone"
