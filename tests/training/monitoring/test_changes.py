"""Changes of level: found soon, described rightly, and not found where there is none."""

import numpy as np
import pytest

from forerun.training.monitoring.changes import LEAST_SHIFT, changes, shift_at
from tests.training.monitoring.streams import NOISES, Simulated

SOON = 200


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("scatter", "workloads"), [(0.02, 20), (0.2, 20), (0.05, 1), (0.1, 300)])
def test_10_000_steady_observations_raise_no_alarm(noise, scatter, workloads):
    for seed in range(3):
        assert changes(*Simulated(10_000, noise, scatter, workloads).drawn(seed)) == ()


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("scatter", "before"), [(0.02, 100), (0.05, 100), (0.1, 300)])
def test_a_slowdown_of_15_percent_is_found_within_200_observations(noise, scatter, before):
    for seed in range(5):
        simulated = Simulated(before + SOON, noise, scatter, change_at=before)
        found = changes(*simulated.drawn(seed))
        assert before < found[0].noticed < before + SOON
        assert abs(found[-1].start - before) <= 20
        assert 0.09 < found[-1].shift < 0.19
        assert found[-1].low < found[-1].shift < found[-1].high


def test_the_interval_of_a_change_holds_it_in_nine_of_ten_cases():
    simulated = Simulated(500, "normal", 0.05, change_at=300)
    found = [changes(*simulated.drawn(seed))[0] for seed in range(60)]
    inside = sum(each.low <= np.log(1.15) <= each.high for each in found)
    assert inside >= 46, "90 % of 60 are 54, and 46 are three standard deviations fewer"


def test_a_return_is_a_change_of_its_own():
    values, workloads = Simulated(900, change_at=300).drawn(0)
    values[600:] -= np.log(1.15)
    up, down = changes(values, workloads)
    assert abs(up.start - 300) <= 20
    assert abs(down.start - 600) <= 20
    assert up.shift == pytest.approx(np.log(1.15), abs=0.02)
    assert down.shift == pytest.approx(-np.log(1.15), abs=0.02)


def test_runs_that_become_faster_are_found_too():
    (found,) = changes(*Simulated(600, change_at=300, factor=1 / 1.15).drawn(0))
    assert found.shift == pytest.approx(-np.log(1.15), abs=0.02)


def test_workloads_that_are_always_answered_wrongly_do_not_matter_however_the_mix_changes():
    values, _ = Simulated(2_000, workloads=1).drawn(0)
    early = np.arange(2_000) < 1_000
    mix = np.where(early, np.arange(2_000) % 5, 5 + np.arange(2_000) % 5)
    assert changes(values + np.where(early, 0.0, 0.5), mix.astype(np.int64)) == ()


def test_a_lasting_change_that_is_small_is_none():
    steady = Simulated(3_000, scatter=0.005, change_at=1_000, factor=1.03).drawn(0)
    assert changes(*steady) == ()
    assert np.log(1.03) < LEAST_SHIFT < np.log(1.07)
    assert (
        len(changes(*Simulated(3_000, scatter=0.005, change_at=1_000, factor=1.07).drawn(0))) == 1
    )


def test_a_change_that_grows_is_found_once_it_is_large():
    values, workloads = Simulated(2_000, scatter=0.01).drawn(0)
    values[500:] += np.linspace(0.0, 0.2, 1_500)
    assert changes(values, workloads)


def test_a_few_outliers_are_no_change():
    values, workloads = Simulated(2_000).drawn(0)
    values[::50] += 3.0
    assert changes(values, workloads) == ()


def test_nothing_and_a_single_row_have_no_change():
    values, workloads = Simulated(1).drawn(0)
    assert changes(values, workloads) == ()
    assert changes(values[:0], workloads[:0]) == ()


def test_a_shift_compares_each_workload_with_itself():
    values = np.array([0.0, 1.0, 0.0, 1.0, 0.2, 1.2, 5.0])
    workloads = np.array([0, 1, 0, 1, 0, 1, 2])
    assert shift_at(values, workloads, 4)[0] == pytest.approx(0.2)
    assert shift_at(values, workloads, 6) == (0.0, 0.0, 0.0), "no earlier row of workload 2"
    assert shift_at(values, workloads, 4, begin=1, end=5)[0] == pytest.approx(0.2)
