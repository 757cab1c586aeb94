"""Power follows a limit up to the demand, clocks follow power: laws over the whole range."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.models.power.limit_physics import SLOWEST, clock, demand, followed_power, stretched

RATIOS = st.lists(st.floats(0.05, 4.0), min_size=2, max_size=20).map(lambda x: np.array(sorted(x)))
HEADROOMS, ONSETS = st.floats(0.85, 1.0), st.floats(1.18, 1.9)


@given(RATIOS, HEADROOMS, ONSETS)
def test_power_never_rises_when_the_limit_falls_and_never_passes_demand(ratios, headroom, onset):
    power = followed_power(ratios, headroom, onset)
    assert (np.diff(power) >= -1e-12).all()
    assert (power <= np.minimum(1.0, headroom * ratios) + 1e-12).all()


@given(RATIOS, HEADROOMS, ONSETS)
def test_a_limit_far_above_the_demand_is_not_felt(ratios, headroom, onset):
    np.testing.assert_array_equal(followed_power(ratios + onset, headroom, onset), 1.0)


@given(st.floats(0.05, 0.84), HEADROOMS, ONSETS)
def test_the_demand_draws_what_was_drawn(power, headroom, onset):
    one = np.array([power])
    wanted = demand(one, np.ones(1), headroom, onset)
    assert wanted >= one
    drawn = wanted * followed_power(1.0 / wanted, headroom, onset)
    np.testing.assert_allclose(drawn, one, rtol=1e-6)


@given(st.floats(0.01, 1.0), st.floats(0.0, 1.0))
def test_a_clock_draws_the_power_that_it_was_given(share, linear):
    found = clock(np.array([share]), linear)[0]
    if found > SLOWEST:
        assert found * (linear + (1 - linear) * found**2) == pytest.approx(share, rel=1e-6)


def test_an_eighth_of_cubic_power_is_half_the_clock_and_twice_the_time_of_pure_compute():
    clocks = clock(np.array([0.125]), 0.0)
    assert clocks[0] == pytest.approx(0.5)
    assert stretched(clocks, 1.0)[0] == pytest.approx(2.0)
    assert stretched(clocks, 0.0)[0] == 1.0
