"""Attention as features: bytes of the cache, pairs of tokens, windows and splits."""

import numpy as np
import pytest

from forerun.features.llm_kernels.families import (
    DECODE_FEATURES,
    PREFILL_FEATURES,
    Heads,
    attended_pairs,
    decode_table,
    prefill_table,
)
from tests.devices import A100, H100


def heads(query: float = 32, key_value: float = 8, window: float = np.inf) -> Heads:
    """One kernel's heads, 128 wide."""
    return Heads(*(np.array([value]) for value in (query, key_value, 128.0, window)))


def one(value: float) -> np.ndarray:
    """A column of one row."""
    return np.array([float(value)])


def test_decoding_reads_the_cache_once_for_each_head_of_keys_and_values():
    """Four query heads share a cache that is read once; queries and results are read besides."""
    table = decode_table(one(64), one(4096), heads(), "bf16", H100)
    cache, rest = 64 * 4096 * 8 * 128 * 2 * 2, 64 * 32 * 128 * 2 * 2
    assert table.bound_s[0] == pytest.approx((cache + rest) / 3.35e12)
    assert table.features.shape == (1, len(DECODE_FEATURES))


def test_a_cache_in_eight_bits_is_half_as_long_to_read():
    wide, narrow = (decode_table(one(64), one(4096), heads(), f, H100) for f in ("bf16", "fp8"))
    assert 1.9 < wide.bound_s[0] / narrow.bound_s[0] < 2.0


def test_a_window_bounds_what_decoding_reads():
    """With a window of 1,024 a context of 32,768 costs as much as one of 1,024."""
    windowed = decode_table(one(8), one(32768), heads(window=1024.0), "bf16", H100)
    short = decode_table(one(8), one(1024), heads(), "bf16", H100)
    assert windowed.bound_s[0] == short.bound_s[0]
    column = DECODE_FEATURES.index("window_over_context")
    assert windowed.features[0, column] == pytest.approx(1 / 32)


@pytest.mark.parametrize("window", [1.0, 3.0, 7.0, 100.0, np.inf])
@pytest.mark.parametrize("context", [0, 2, 9])
def test_pairs_are_counted_token_by_token(context, window):
    """The closed form equals a sum over tokens of what each attends to."""
    by_token = sum(min(context + place + 1, window) for place in range(6))
    assert attended_pairs(one(6), one(context), one(window))[0] == by_token


def test_long_prompts_are_bound_by_arithmetic_in_the_format_of_the_products():
    """8-bit products double the rate where the device has them, and not where it has none."""
    sizes = one(1), one(16384), one(0), heads()
    for device, gain in ((H100, 1979 / 989.4), (A100, 1.0)):
        wide = prefill_table(*sizes, "bf16", "bf16", device)
        narrow = prefill_table(*sizes, "fp8", "bf16", device)
        assert wide.bound_s[0] / narrow.bound_s[0] == pytest.approx(gain)
    assert wide.features.shape == (1, len(PREFILL_FEATURES))


def test_a_launch_takes_longer_at_a_lower_clock():
    fast, slow = (decode_table(one(1), one(128), heads(), "bf16", d) for d in (H100, A100))
    assert slow.launch[0] / fast.launch[0] == pytest.approx(1980 / 1410)
