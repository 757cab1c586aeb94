"""Stopwatch: medians, spread and drift of what is timed, in as many runs as the budget allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.collectors.runner.stopwatch import Stopwatch, summary


class FakeClock:
    """A clock that only work moves."""

    def __init__(self, times):
        self.now, self.times, self.runs = 0.0, iter(times), 0

    def __call__(self):
        return self.now

    def run(self):
        self.runs += 1
        self.now += next(self.times)


def timed(times, **how):
    clock = FakeClock(times)
    return Stopwatch(clock=clock, **how).time(clock.run), clock


def endless(value):
    while True:
        yield value


def test_the_median_leaves_warm_up_out():
    timing, _ = timed([5.0, 4.0, *[0.1] * 100], budget_s=1.0, warm_up_s=0.0)
    assert timing.median_ms == pytest.approx(100)
    assert timing.spread == pytest.approx(0, abs=1e-9)


def test_runs_fill_the_budget_and_no_more():
    timing, clock = timed(endless(0.1), budget_s=1.0, warm_up_s=0.0)
    assert timing.repeats == 10
    assert clock.runs == 12


def test_a_slow_run_is_measured_a_least_number_of_times_whatever_the_budget():
    timing, _ = timed(endless(50.0), budget_s=1.0)
    assert timing.repeats == 3


def test_a_window_that_drifts_is_measured_again_and_the_steadier_one_counts():
    rising = [0.1, 0.1, *[0.1] * 5, *[0.16] * 50]
    timing, _ = timed(rising, budget_s=1.0, warm_up_s=0.0)
    assert timing.drift == pytest.approx(0)
    assert timing.median_ms == pytest.approx(160)


def test_seconds_of_another_clock_count_where_they_are_given():
    clock = FakeClock(endless(0.1))

    def seconds(run):
        run()
        return 0.02

    timing = Stopwatch(1.0, clock=clock, seconds=seconds).time(clock.run)
    assert timing.median_ms == pytest.approx(20)
    assert timing.window_s == pytest.approx(0.1 * timing.repeats)


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=60), st.floats(0.01, 100))
def test_spread_and_drift_do_not_depend_on_the_unit(times, scale):
    plain, scaled = summary(times, 1.0), summary([scale * t for t in times], 1.0)
    assert scaled.median_ms == pytest.approx(scale * plain.median_ms)
    assert scaled.spread == pytest.approx(plain.spread, abs=1e-6)
    assert scaled.drift == pytest.approx(plain.drift, rel=1e-6, abs=1e-6)
    assert plain.spread >= 0
    assert min(times) <= plain.median_ms / 1e3 * (1 + 1e-9)


def test_the_fastest_steady_window_is_kept():
    """A first window at a level of 33 ms drifts down; the second one is steady at 20."""
    falling = [0.05, 0.05, *[0.033] * 20, *[0.02] * 80]
    timing, _ = timed(falling, budget_s=1.0, warm_up_s=0.0)
    assert timing.median_ms == pytest.approx(20)
    slower_again = [0.05, 0.05, *[0.02] * 20, *[0.033] * 18, *[0.033] * 60]
    timing, _ = timed(slower_again, budget_s=1.0, warm_up_s=0.0, parts=4)
    assert timing.median_ms == pytest.approx(20)


def test_parts_leave_a_neighbour_out_that_came_for_a_while():
    disturbed = [0.01, 0.01, *[0.01] * 30, *[0.016] * 30, *[0.01] * 100]
    timing, _ = timed(disturbed, budget_s=1.0, warm_up_s=0.0, parts=5)
    assert timing.median_ms == pytest.approx(10)
    assert timing.steady


def test_the_fastest_run_of_all_is_reported_with_the_window_that_counts():
    times = [0.05, 0.05, 0.008, *[0.02] * 200]
    timing, _ = timed(times, budget_s=1.0, warm_up_s=0.0, parts=5)
    assert timing.fastest_ms == pytest.approx(8)
    assert timing.median_ms == pytest.approx(20)
