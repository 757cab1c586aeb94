"""Scores: properties for any columns, and values computed by hand."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import mean_absolute_percentage_error

from forerun.training.scores.errors import (
    mean_and_standard_error,
    r2,
    score,
    smape,
    spearman,
)

positive = st.floats(1e-3, 1e6)
pairs = st.lists(st.tuples(positive, positive), min_size=1, max_size=40)
anything = st.lists(st.tuples(*[st.floats(width=64)] * 4), max_size=20)


def same(one, other):
    close = {k: v is not None and pytest.approx(v, rel=1e-9, abs=1e-9) for k, v in other.items()}
    return {k: v is not None and v for k, v in one.items()} == close


def columns(rows):
    return [np.array(column, dtype=float) for column in zip(*rows, strict=True)]


def test_scores_worked_by_hand():
    found = score([1.0, 2.0, 4.0], [1.1, 1.0, 4.0], low=[0.5, 1.5, 1.0], high=[1.0, 3.0, 2.0])
    assert found["n"] == 3
    assert found["mape"] == pytest.approx((10 + 50 + 0) / 3)
    assert found["median_ape"] == pytest.approx(10)
    assert found["within_10pct"] == pytest.approx(200 / 3)
    assert found["spearman"] == pytest.approx(0.5)
    assert found["coverage_90"] == pytest.approx(200 / 3)
    assert found["mean_interval_ratio"] == pytest.approx(2.0)


@given(pairs)
def test_a_perfect_answer_scores_perfectly(rows):
    measured, _ = columns(rows)
    found = score(measured, measured, measured, measured)
    assert (found["mape"], found["median_ape"], found["within_10pct"]) == (0, 0, 100)
    assert (found["coverage_90"], found["mean_interval_ratio"]) == (100, 1)
    assert found["spearman"] == (None if len(set(measured)) == 1 else pytest.approx(1))


@given(pairs, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(rows, random):
    shuffled = list(rows)
    random.shuffle(shuffled)
    one, other = (score(*columns(r)) for r in (rows, shuffled))
    assert same(one, other)


@given(pairs, st.sampled_from([2.0**-8, 0.5, 4.0, 1024.0]))
def test_the_unit_does_not_matter(rows, unit):
    measured, predicted = columns(rows)
    assert score(measured * unit, predicted * unit) == score(measured, predicted)


@given(pairs)
def test_every_row_twice_changes_no_score_but_the_count(rows):
    once, twice = (score(*columns(r)) for r in (rows, rows + rows))
    assert twice.pop("n") == 2 * once.pop("n")
    assert same(once, twice)


@given(pairs, st.floats(1.0, 3.0), st.floats(1.0, 3.0))
def test_a_wider_interval_never_covers_less(rows, narrow, wider):
    measured, predicted = columns(rows)
    one, other = (
        score(measured, predicted, predicted / factor, predicted * factor)
        for factor in (narrow, narrow * wider)
    )
    assert other["coverage_90"] >= one["coverage_90"]
    assert other["mean_interval_ratio"] >= one["mean_interval_ratio"]


@given(anything)
def test_no_input_ever_puts_nan_or_infinity_into_json(rows):
    measured, predicted, low, high = columns(rows) if rows else ([], [], [], [])
    found = score(measured, predicted, low, high)
    json.dumps(found, allow_nan=False)
    assert found["n"] + found["unanswered"] <= len(rows)


@given(pairs)
def test_spearman_only_depends_on_order(rows):
    measured, predicted = columns(rows)
    _, rank = np.unique(predicted, return_inverse=True)
    assert spearman(measured, np.exp(rank)) == spearman(measured, predicted)
    found = spearman(measured, -predicted)
    assert (found is None) or found == pytest.approx(-spearman(measured, predicted), abs=1e-9)


def test_scores_that_do_not_apply_are_none():
    empty = score([], [])
    assert empty["n"] == 0
    assert {empty["mape"], empty["median_ape"], empty["within_10pct"], empty["spearman"]} == {None}
    assert score([1.0, 1.0], [1.0, 2.0])["spearman"] is None, "a constant has no order"
    assert score([2.0], [2.0])["spearman"] is None
    without = score([1.0], [1.0])
    assert without["coverage_90"] is None and without["mean_interval_ratio"] is None
    zero = score([0.0, 1.0], [0.1, 1.0])
    assert zero["mape"] is None, "a percentage of nothing"
    assert zero["n"] == 2 and zero["spearman"] == pytest.approx(1)


def test_rows_without_an_answer_are_counted_and_rows_never_measured_are_not():
    found = score([1.0, 2.0, np.nan], [1.0, np.nan, 3.0])
    assert (found["n"], found["unanswered"], found["mape"]) == (1, 1, 0)


def test_intervals_are_scored_if_given():
    found = score([1.0, 2.0], [1.0, 2.0], [0.5, np.nan], [2.0, np.nan])
    assert (found["n"], found["coverage_90"], found["mean_interval_ratio"]) == (2, 100, 4)


def test_exactly_ten_percent_counts_as_within():
    assert score([1.0, 3.0], [1.1, 2.7])["within_10pct"] == 100


@pytest.mark.parametrize("call", [
    lambda: score([1.0], [1.0, 2.0]),
    lambda: score([[1.0]], [[1.0]]),
    lambda: score([1.0], [1.0], low=[0.5]),
])  # fmt: skip
def test_columns_of_different_lengths_are_refused(call):
    with pytest.raises(ValueError, match=r"length|both ends"):
        call()


def test_the_standard_error_over_seeds_is_the_textbook_one():
    mean, error = mean_and_standard_error([1.0, 2.0, 3.0, None])
    assert (mean, error) == (pytest.approx(2), pytest.approx(1 / np.sqrt(3)))
    assert mean_and_standard_error([5.0]) == (5.0, None)
    assert mean_and_standard_error([]) == (None, None)


def test_r2_and_smape_by_hand():
    """1 - 2/2 for a constant prediction at the mean; (0, 0) counts 0 and (0, 1) counts 200."""
    assert r2([1.0, 3.0], [2.0, 2.0]) == pytest.approx(0.0)
    assert r2([1.0, 3.0], [1.0, 3.0]) == 1.0
    assert r2([2.0, 2.0], [1.0, 3.0]) is None
    assert smape([0.0, 0.0, 3.0], [0.0, 1.0, 1.0]) == pytest.approx((0.0 + 200.0 + 100.0) / 3)
    assert smape([], []) is None


@pytest.mark.parametrize("wrong", [1.1001, 1.105, 0.8999])
def test_a_little_over_ten_percent_does_not_count_as_within(wrong):
    assert score([1.0], [wrong])["within_10pct"] == 0


@given(pairs)
def test_errors_are_scikit_learns_and_numpys(rows):
    measured, predicted = columns(rows)
    found = score(measured, predicted)
    wrong = mean_absolute_percentage_error(measured, predicted)
    assert found["mape"] == pytest.approx(100.0 * wrong, rel=1e-9, abs=1e-9)
    each = 100.0 * np.abs(predicted / measured - 1.0)
    assert found["median_ape"] == pytest.approx(np.median(each), rel=1e-6, abs=1e-6)
    mean = (np.abs(measured) + np.abs(predicted)) / 2.0
    wanted = 100.0 * np.mean(np.abs(measured - predicted) / mean)
    assert found["smape"] == pytest.approx(wanted, rel=1e-9, abs=1e-9)
