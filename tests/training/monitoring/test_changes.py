"""Level changes are found soon and without false alarms; live errors; sequential ranks."""

import numpy as np
import pytest

from forerun.training.monitoring.changes import (
    LEAST_SHIFT,
    autocorrelation_scales,
    changes,
    sequential_ranks,
    shift_at,
)
from forerun.training.monitoring.slices import LiveError
from forerun.training.scores.errors import score
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


def test_a_return_to_the_old_level_is_a_separate_change():
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


def test_constant_errors_of_workloads_do_not_matter_when_the_mix_changes():
    values, _ = Simulated(2_000, workloads=1).drawn(0)
    early = np.arange(2_000) < 1_000
    mix = np.where(early, np.arange(2_000) % 5, 5 + np.arange(2_000) % 5)
    assert changes(values + np.where(early, 0.0, 0.5), mix.astype(np.int64)) == ()


def test_a_small_lasting_change_is_not_reported():
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


def test_a_few_outliers_are_not_a_change():
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


NAN = float("nan")


def test_errors_are_those_of_an_evaluation_of_the_same_rows():
    measured, answered = np.array([10.0, 20.0, 40.0]), np.array([11.0, 15.0, 44.0])
    low, high = answered * 0.9, answered * 1.1
    inside = ((low <= measured) & (measured <= high)).astype(float)
    live = LiveError.of(np.log(measured / answered), inside)
    same = score(measured, answered, low, high)
    assert live.mape == pytest.approx(same["mape"])
    assert live.median_ape == pytest.approx(same["median_ape"])
    assert live.coverage_90 == pytest.approx(same["coverage_90"])
    assert (live.rows, live.rows_with_interval) == (3, 3)


def test_the_bias_is_a_median_and_positive_if_runs_take_longer_than_answered():
    assert LiveError.of(np.log([1.2, 1.2, 0.5]), np.zeros(3)).bias == pytest.approx(np.log(1.2))


def test_coverage_only_counts_answers_with_an_interval():
    live = LiveError.of(np.zeros(4), np.array([1.0, NAN, 0.0, NAN]))
    assert (live.rows_with_interval, live.coverage_90) == (2, 50.0)
    none = LiveError.of(np.zeros(2), np.array([NAN, NAN]))
    assert (none.rows_with_interval, none.coverage_90) == (0, None)


@pytest.mark.parametrize("ratios", [[], [NAN], [np.inf]])
def test_no_row_and_numbers_that_are_not_finite_are_refused(ratios):
    with pytest.raises(ValueError, match="finite log ratios"):
        LiveError.of(np.array(ratios, dtype=np.float64), np.zeros(len(ratios)))


ONE = np.zeros(4, dtype=np.int64)


def test_each_value_is_ranked_among_the_earlier_ones_of_its_group():
    ranks = sequential_ranks(np.array([5.0, 7.0, 1.0, 6.0]), ONE)
    # After 0, 1, 2 and 3 values, with ranks 0, 1, 0 and 2 of a mean n / 2.
    spread = np.sqrt(np.array([1, 2, 3]) * np.array([3, 4, 5]) / 12)
    assert ranks[0] == 0.0, "nothing to compare with"
    assert ranks[1:] == pytest.approx(np.array([0.5, -1.0, 0.5]) / spread)


def test_groups_are_not_compared():
    values = np.array([1.0, 100.0, 2.0, 200.0])
    alone = sequential_ranks(values[::2], ONE[:2])
    both = sequential_ranks(values, np.array([0, 1, 0, 1]))
    assert both[::2] == pytest.approx(alone)
    assert both[1::2] == pytest.approx(alone)


def test_ranks_do_not_depend_on_level_and_scale():
    values, groups = Simulated(500).drawn(0)
    assert np.array_equal(
        sequential_ranks(values, groups), sequential_ranks(7 * values - 3, groups)
    )


def test_equal_values_have_the_mean_rank():
    assert np.array_equal(sequential_ranks(np.ones(4), ONE), np.zeros(4))


@pytest.mark.parametrize("noise", NOISES[:4])
def test_ranks_of_steady_values_have_mean_0_and_variance_1(noise):
    ranks = sequential_ranks(*Simulated(4_000, noise).drawn(1))
    assert abs(ranks.mean()) < 0.05
    assert ranks[20:].var() == pytest.approx(1.0, abs=0.05)


def test_only_sums_of_autocorrelated_ranks_are_inflated():
    def last(noise):
        return autocorrelation_scales(sequential_ranks(*Simulated(4_000, noise).drawn(2)))[-1]

    assert last("normal") < 1.1
    # sqrt(1.3 / 0.7) = 1.36; noise of several scales and the ranks weaken the correlation a little.
    assert 1.2 < last("autocorrelated") < 1.45


def test_a_scale_only_depends_on_earlier_ranks():
    ranks = sequential_ranks(*Simulated(300).drawn(3))
    changed = ranks.copy()
    changed[200:] = 1.7
    assert np.array_equal(
        autocorrelation_scales(ranks)[:201], autocorrelation_scales(changed)[:201]
    )
    assert len(autocorrelation_scales(ranks[:1])) == 1
    assert len(autocorrelation_scales(ranks[:0])) == 0
