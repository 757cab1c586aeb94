"""Processes with kernels weighted from few rows, and what is built on them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.models.adaptation.support_set import suggest
from forerun.models.architectures.latency import LowRankFactors, Stacking
from forerun.models.gaussian_process.regression import (
    Answer,
    Covariance,
    GaussianProcessRegression,
    covariances_over,
    stacking_weights,
    standardised,
)

SEEDS = st.integers(0, 2**16)


def rows(seed, n=20, columns=4):
    return np.random.default_rng(seed).normal(size=(n, columns))


def process():
    return GaussianProcessRegression(
        (Covariance("constant"), *covariances_over((0, 4), (1.0, 3.0)))
    )


def test_known_noise_of_a_row_makes_it_count_less():
    places, values = rows(0), rows(0)[:, 0].copy()
    values[0] += 5.0
    loud = np.zeros(20)
    loud[0] = 25.0
    trusted, doubted = (process().fit(places, values, noise) for noise in (0.0, loud))
    truth = rows(1)[:, 0]
    errors = [np.abs(p.predict(rows(1)).mean - truth).mean() for p in (trusted, doubted)]
    assert errors[1] < errors[0] / 2


def test_columns_are_standardised_like_others_and_constant_ones_become_zero():
    given_rows = np.array([[1.0, 5.0], [3.0, 5.0]])
    np.testing.assert_allclose(standardised(given_rows), [[-1.0, 0.0], [1.0, 0.0]])
    np.testing.assert_allclose(standardised(np.array([[5.0, 5.0]]), given_rows), [[3.0, 0.0]])


@pytest.mark.slow
@given(SEEDS, st.integers(2, 5))
def test_stacking_weights_add_up_and_leave_a_say_to_each(seed, experts):
    densities = np.random.default_rng(seed).normal(-1.0, 2.0, (experts, 20))
    weights = stacking_weights(densities)
    assert weights.sum() == pytest.approx(1.0)
    assert (weights >= 1.0 / (experts * 21) - 1e-9).all()


def test_the_expert_that_foretells_the_rows_gets_the_weight():
    truth = np.linspace(0.0, 1.0, 20)
    good, bad = Answer(truth + 0.01, np.full(20, 0.01)), Answer(truth + 1.0, np.full(20, 0.01))
    assert Stacking.of([bad, good], truth).weights[1] > 0.9


def test_answers_take_the_inflation_that_left_out_rows_asked_for():
    """An expert whose variance is a third of the truth: the answer is as wide as its errors."""
    random = np.random.default_rng(0)
    truth, fresh = random.normal(0.0, 1.0, (2, 400))
    sure = Answer(np.zeros(400), np.full(400, 0.3))
    stacked = Stacking.of([sure], truth)
    answer = stacked.combine([sure])
    np.testing.assert_allclose(answer.variance, 0.3 * stacked.inflation)
    inside = np.abs(fresh) <= stacked.half_width(answer)
    # Squares of standardised errors are clipped at 9, which leaves it a little narrow.
    assert 0.8 < inside.mean() < 0.95


@given(SEEDS)
@settings(max_examples=20)
def test_factors_keep_what_a_matrix_of_their_rank_says(seed):
    generator = np.random.default_rng(seed)
    times = generator.normal(size=(50, 3)) @ generator.normal(size=(3, 7)) + 2.0
    learned = LowRankFactors.of(times, 6)
    back = learned.levels + learned.factors(times) * learned.scales[0] @ learned.projection.T
    np.testing.assert_allclose(back, times, atol=1e-8)
    assert (np.diff(learned.scales) <= 1e-12).all()


@given(SEEDS, st.integers(1, 30))
@settings(max_examples=20)
def test_suggestions_are_different_rows_and_the_same_again(seed, count):
    kernels = (Covariance("constant"), Covariance("linear"), Covariance("radial", length=2.0))
    chosen = suggest(rows(seed, 25), kernels, np.array([0.1, 0.5, 0.1]), 0.01, count, seed)
    assert len(set(chosen)) == len(chosen) == min(count, 25)
    again = suggest(rows(seed, 25), kernels, np.array([0.1, 0.5, 0.1]), 0.01, count, seed)
    assert chosen == again
