"""Counters wrap, are set back or were never read; clocks jump: none of it makes a number up."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.collectors.system.procfs import growth, is_gap, rates


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        (5, 9, 4),
        (2**32 - 3, 4, 7),
        (2**32 - 1, 0, 1),
        (float(2**64 - 2048), 2048.0, 4096),
        (1000, 10, math.nan),
        (2**40, 10, math.nan),
        (math.nan, 10, math.nan),
    ],
)
def test_a_counter_grows_through_a_wrap_and_is_unknown_when_set_back(before, after, moved):
    assert growth(before, after) == pytest.approx(moved, nan_ok=True)


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**29))
def test_a_wrap_of_32_bits_loses_nothing(before, moved):
    assert growth(before, (before + moved) % 2**32) == moved


@given(st.floats(0, 1e18), st.floats(0, 1e18))
def test_growth_is_never_negative(before, after):
    assert not growth(before, after) < 0


def test_a_counter_that_appears_has_no_rate_yet_and_one_that_vanishes_has_none():
    found = rates({"old": 1.0, "kept": 2.0}, {"new": 5.0, "kept": 6.0}, 2.0)
    assert found["kept"] == 2.0
    assert math.isnan(found["new"])
    assert "old" not in found


@pytest.mark.parametrize("seconds", [0.0, -3.0, math.nan])
def test_there_is_no_rate_over_no_time(seconds):
    assert math.isnan(rates({"a": 1.0}, {"a": 2.0}, seconds)["a"])


@pytest.mark.parametrize(
    ("seconds", "gap"), [(1.0, False), (1.4, False), (1.6, True), (-1.0, True), (0.0, True)]
)
def test_readings_too_far_apart_and_clocks_that_jump_leave_a_gap(seconds, gap):
    assert is_gap(seconds, 1.0) is gap
