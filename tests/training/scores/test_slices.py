"""Paired comparisons of two predictors by slice, with intervals of the differences."""

import numpy as np
import pytest

from forerun.training.scores.errors import FEWEST_GROUPS, PairedErrors, compared


def rows(before, after, groups=None, **facts):
    """Measured values of 1, with predictions that are off by the given shares."""
    count = len(before)
    groups = groups or [str(number) for number in range(count)]
    facts = {name: list(values) for name, values in facts.items()}
    ones = np.ones(count)
    return PairedErrors.of(ones, ones + np.array(before), ones + np.array(after), groups, facts)


def whole(*given, **more):
    return compared("latency_ms", rows(*given, **more))[0]


def test_errors_are_mean_absolute_percentages():
    own = whole([0.1, -0.3] * 4, [0.05, -0.05] * 4)
    assert (own.before, own.after) == pytest.approx((20.0, 5.0))
    assert (own.rows, own.groups, own.slice) == (8, 8, {})


def test_a_candidate_that_is_better_everywhere_is_better_beyond_its_noise():
    noise = np.random.default_rng(0).uniform(0, 0.05, 30)
    own = whole(0.4 + noise, 0.1 + noise)
    assert own.low < own.high < 0
    assert own.low <= own.after - own.before <= own.high


def test_identical_predictions_have_no_difference():
    own = whole([0.2] * 10, [0.2] * 10)
    assert (own.low, own.high) == (0.0, 0.0)


def test_rows_of_a_workload_are_resampled_together():
    """Ten copies of the same rows add no information, so the interval keeps its width."""
    change = np.random.default_rng(1).normal(0, 0.1, 12)
    groups = [str(number) for number in range(12)]
    once = whole([0.5] * 12, 0.5 + change, groups=groups)
    often = whole([0.5] * 120, np.tile(0.5 + change, 10), groups=groups * 10)
    assert (often.low, often.high) == pytest.approx((once.low, once.high))


def test_a_slice_of_few_workloads_is_judged_by_every_workload():
    """Convolutional networks get better while the only transformer gets worse."""
    kinds = ["convolutional"] * 8 + ["transformer"] * 2
    before, after = [0.235] * 8 + [0.494, 0.47], [0.03] * 8 + [0.653, 0.6]
    found = compared("latency_ms", rows(before, after, family=kinds))
    assert [own.name for own in found if own.is_worse] == ["latency_ms transformer"]
    mixed = compared("latency_ms", rows(before, [*after[:-1], 0.1], family=kinds))
    assert not [own for own in mixed if own.is_worse], "one of two got better"
    small = compared("latency_ms", rows([0.2] * 4, [0.205] * 4))
    assert not small[0].is_worse, "seeds explain as much"
    assert whole([0.2] * FEWEST_GROUPS, [0.205] * FEWEST_GROUPS).is_worse


def test_slices_of_the_same_rows_are_compared_once():
    found = compared("latency_ms", rows([0.1] * 6, [0.2] * 6, kind=["kernel"] * 6, family=[""] * 6))
    assert [own.slice for own in found] == [{}]
