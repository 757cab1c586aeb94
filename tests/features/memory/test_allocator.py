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
FEW = [ROUND, SMALL_REQUEST, *(n * MIB for n in (6, 12, 18, 19, 24))]
SIZES = st.one_of(st.sampled_from(FEW), st.integers(1, 3 * MIB), st.integers(1, 60 * MIB))


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


@given(runs(), st.data())
def test_a_run_goes_on_from_a_copy_as_from_the_beginning(run, data):
    events, sizes = run
    cut = data.draw(st.integers(0, len(events)))
    begun = CachingAllocator()
    begun.run(events[:cut], sizes)
    whole = peaks(events, sizes)
    assert begun.copy().run(events[cut:], sizes) == whole
    assert begun.copy().run(events[cut:], sizes) == whole, "a copy leaves the original alone"
