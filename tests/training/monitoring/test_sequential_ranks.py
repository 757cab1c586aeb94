"""Sequential ranks: independent of level, scale and distribution, and of unit variance."""

import numpy as np
import pytest

from forerun.training.monitoring.changes import autocorrelation_scales, sequential_ranks
from tests.training.monitoring.streams import NOISES, Simulated

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


def test_level_and_scale_do_not_enter():
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


def test_a_sum_of_autocorrelated_ranks_grows_more_and_of_others_does_not():
    def last(noise):
        return autocorrelation_scales(sequential_ranks(*Simulated(4_000, noise).drawn(2)))[-1]

    assert last("normal") < 1.1
    # sqrt(1.3 / 0.7) = 1.36; noise of several scales and the ranks weaken the correlation a little.
    assert 1.2 < last("autocorrelated") < 1.45


def test_a_scale_is_known_before_its_rank():
    ranks = sequential_ranks(*Simulated(300).drawn(3))
    changed = ranks.copy()
    changed[200:] = 1.7
    assert np.array_equal(
        autocorrelation_scales(ranks)[:201], autocorrelation_scales(changed)[:201]
    )
    assert len(autocorrelation_scales(ranks[:1])) == 1
    assert len(autocorrelation_scales(ranks[:0])) == 0
