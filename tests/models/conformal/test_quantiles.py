"""Quantiles of exchangeable scores, of groups that count alike, and of few groups."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm, t

from forerun.models.conformal import (
    conformal_quantile,
    group_weights,
    student_quantile,
    weighted_quantile,
)


@pytest.mark.parametrize(("n", "rank"), [(9, 9), (10, 10), (19, 18), (99, 90), (109, 99), (5, 5)])
def test_the_conformal_quantile_is_an_order_statistic(n, rank):
    """The rank is ceil((n + 1) * 0.9), at most n; 110 * 0.9 is 99 and not a little more."""
    scores = np.random.default_rng(n).permutation(np.arange(1.0, n + 1))
    assert conformal_quantile(scores, 0.9) == rank


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.5, 0.8, 0.9]))
def test_a_group_counts_alike_however_many_rows_it_has(seed, level):
    random = np.random.default_rng(seed)
    values, groups = random.normal(size=12), np.arange(12)
    repeats = random.integers(1, 6, 12)
    once = weighted_quantile(values, group_weights(groups), level)
    many = np.repeat(values, repeats)
    assert weighted_quantile(many, group_weights(np.repeat(groups, repeats)), level) == once


def test_nine_of_ten_equal_weights_reach_the_level():
    values = np.arange(10.0)
    assert weighted_quantile(values, np.full(10, 0.1), 0.9) == 8.0
    assert weighted_quantile(values, np.full(10, 3.0), 1.5) == 9.0


def test_few_groups_widen_a_normal_interval():
    assert student_quantile(4.0, 0.9) == pytest.approx(t.ppf(0.95, 4))
    assert student_quantile(1e9, 0.8) == pytest.approx(norm.ppf(0.9))


def test_the_correction_counts_groups_and_not_rows():
    """Of nine groups the largest score is the quantile at 90 %, however often each is measured."""
    scores, groups = np.repeat(np.arange(9.0), 50), np.repeat(np.arange(9), 50).astype(str)
    assert conformal_quantile(scores, 0.9, groups) == 8.0
    assert conformal_quantile(scores, 0.85) < 8.0
    many = np.linspace(0.0, 1.0, 201)
    assert conformal_quantile(many, 0.9, np.arange(201).astype(str)) == many[181]
