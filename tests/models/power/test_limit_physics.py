"""Power follows a limit up to the demand, clocks follow power: laws over the whole range."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.models.power.limit_response import SLOWEST, clock, demand, followed_power, stretched

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


@pytest.mark.parametrize(("headroom", "onset"), [(0.9, 1.3), (1.0, 1.2), (0.95, 1.6)])
def test_power_follows_a_low_limit_and_bends_smoothly_to_the_demand(headroom, onset):
    """Straight lines joined by a parabola: value and slope agree at both ends."""
    start = 2.0 / headroom - onset

    def power(ratio):
        return float(followed_power(np.array([ratio]), headroom, onset)[0])

    def slope(ratio):
        return (power(ratio + 1e-6) - power(ratio - 1e-6)) / 2e-6

    assert power(0.5 * start) == pytest.approx(headroom * 0.5 * start)
    assert power(start) == pytest.approx(headroom * start)
    assert slope(start + 1e-5) == pytest.approx(headroom, abs=1e-3)
    assert power(onset) == 1.0
    assert power(onset - 1e-6) == pytest.approx(1.0)
    assert slope(onset - 1e-5) == pytest.approx(0.0, abs=1e-3)
    assert power(0.5 * (start + onset)) < 1.0


def test_clocks_end_at_the_slowest():
    assert pytest.approx(0.05) == SLOWEST, "GPUs of 1.4 GHz go down to 70 MHz at least"
    assert clock(np.array([1e-9]), 1.0)[0] == SLOWEST
