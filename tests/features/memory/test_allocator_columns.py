"""Runs that are served together reach the peaks that each reaches alone."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forerun.features.memory.allocator import FEWEST, CachingAllocator, peaks_of_each
from tests.features.memory.test_allocator import runs


def alone(events, sizes, begun):
    return [begun.copy().run(events, own) for own in sizes.T.tolist()]


@given(runs(), st.integers(0, 2**31), st.floats(0.0, 1.0))
def test_peaks_are_those_of_each_run_alone(run, seed, share):
    """Sizes differ by orders of magnitude, so that runs use different pools and split otherwise."""
    events, sizes = run
    factors = np.exp(np.random.default_rng(seed).uniform(-6, 3, FEWEST))
    columns = np.ceil(np.outer(sizes, factors)).astype(np.int64)
    begun, cut = CachingAllocator(), int(share * len(events))
    columns[[event if event >= 0 else ~event for event in events[:cut]]] = np.array(sizes)[
        [event if event >= 0 else ~event for event in events[:cut]]
    ][:, None]
    begun.run(events[:cut], sizes)
    assert peaks_of_each(events[cut:], columns, begun) == alone(events[cut:], columns, begun)


def test_tensors_without_bytes_request_nothing():
    columns = np.repeat([[0], [3 << 20]], FEWEST, axis=1)
    found = peaks_of_each([0, 1, ~0], columns, CachingAllocator())
    assert found == alone([0, 1, ~0], columns, CachingAllocator())
    columns[0, 0] = 7
    found = peaks_of_each([0, 1, ~0], columns, CachingAllocator())
    assert found == alone([0, 1, ~0], columns, CachingAllocator())


def test_beyond_the_bits_of_an_address_runs_are_served_one_by_one():
    columns = np.repeat([[1 << 42], [3 << 40]], FEWEST, axis=1)
    columns[:, 1] = 5 << 20
    assert peaks_of_each([0, ~0, 1], columns, CachingAllocator()) == alone(
        [0, ~0, 1], columns, CachingAllocator()
    )
