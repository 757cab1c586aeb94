"""The categorical process: its covariance for each pair, its hyperparameters at the mode."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import PairwiseKernel

from forerun.models.gaussian_process import additive_categorical
from forerun.models.gaussian_process.additive_categorical import (
    DEGREES_OF_FREEDOM,
    JITTER,
    NEAR,
    RECENT_YEARS,
    ROBUST_STEPS,
    AdditiveCategoricalProcess,
    KeyedRows,
    Term,
    covariance,
)

TERMS = (
    Term((), "one", 0.4),
    Term(("device",), "one", 0.3),
    Term(("model", "scenario"), "one", 0.3),
    Term((), "linear", 0.05),
    Term(("model",), "near", 0.3),
    Term(("device",), "recent", 0.2),
    Term((), "scale", 0.1),
    Term((), "work", 0.05),
)


def drawn(n, seed=0):
    random = np.random.default_rng(seed)
    sheet = random.normal(size=(n, 6))
    sheet[::5] = np.nan
    keys = {
        "device": random.choice(["a", "b", "c", ""], n),
        "model": random.choice(["x", "y"], n),
        "scenario": random.choice(["one", "many"], n),
    }
    numbers = {name: random.normal(size=n) for name in ("time", "scale", "work")}
    return KeyedRows(keys, sheet, numbers)


def pair(one, i, other, j):
    """Covariance of two rows, term by term as the docstrings say."""
    total = 0.0
    for term in TERMS:
        mine = [one.keys[k][i] for k in term.keys]
        if mine != [other.keys[k][j] for k in term.keys] or "" in mine:
            continue
        a, b = one.sheet[i], other.sheet[j]
        sheets = not (np.isnan(a).any() or np.isnan(b).any())
        part = 1.0
        if term.shape == "linear":
            part = float(a @ b) if sheets else 0.0
        elif term.shape == "near":
            part = float(np.exp(-((a - b) ** 2).sum() / (2 * NEAR**2))) if sheets else 0.0
        elif term.shape != "one":
            name = {"recent": "time"}.get(term.shape, term.shape)
            a, b = one.numbers[name][i], other.numbers[name][j]
            part = {
                "recent": np.exp(-abs(a - b) / RECENT_YEARS),
                "scale": a * b + np.exp(-((a - b) ** 2) / 2),
                "work": a * b,
            }[term.shape]
        total += term.deviation**2 * part
    return total


def by_pairs(one, other):
    return np.array([[pair(one, i, other, j) for j in range(len(other))] for i in range(len(one))])


def test_the_covariance_is_the_sum_of_its_terms_pair_by_pair():
    one, other = drawn(12), drawn(7, seed=1)
    np.testing.assert_allclose(covariance(one, other, TERMS), by_pairs(one, other), atol=1e-12)
    assert np.linalg.eigvalsh(covariance(one, one, TERMS)).min() > -1e-9


def test_the_mean_is_that_of_scikit_learns_process_under_the_weights_of_the_rows():
    rows, asked = drawn(25), drawn(6, seed=1)
    values = np.random.default_rng(2).normal(1.0, 0.4, 25)
    found = AdditiveCategoricalProcess.fit(rows, values, TERMS, noise=0.1, learn=False)
    noise = found.noise**2 / found.robust_weights + JITTER

    def between(one, other, gamma):
        sets = [*[(rows, i) for i in range(25)], *[(asked, i) for i in range(6)]]
        return pair(*sets[int(one[0])], *sets[int(other[0])])

    kernel = PairwiseKernel(metric=between, gamma_bounds="fixed")
    process = GaussianProcessRegressor(kernel, alpha=noise, optimizer=None)
    process.fit(np.arange(25.0)[:, None], values - np.median(values))
    mean = np.median(values) + process.predict(np.arange(25.0, 31.0)[:, None])
    np.testing.assert_allclose(found.predict(asked), mean, atol=1e-7)


def test_weights_of_rows_are_those_of_students_errors_by_expectation_maximisation():
    """Two iterations: the expected precision of each row given its residual (Neal 1997)."""
    rows, values = drawn(25), np.random.default_rng(2).normal(1.0, 0.4, 25)
    values[3] += 4.0
    found = AdditiveCategoricalProcess.fit(rows, values, TERMS, noise=0.1, learn=False)
    gram, centred, robust_weights = by_pairs(rows, rows), values - np.median(values), np.ones(25)
    for _ in range(ROBUST_STEPS):
        whole = gram + np.diag(0.1**2 / robust_weights + JITTER)
        residuals = 0.1**2 / robust_weights * np.linalg.solve(whole, centred)
        robust_weights = (DEGREES_OF_FREEDOM + 1) / (DEGREES_OF_FREEDOM + (residuals / 0.1) ** 2)
    np.testing.assert_allclose(found.robust_weights, robust_weights, rtol=1e-6)
    assert found.robust_weights.argmin() == 3


@pytest.mark.parametrize("seed", range(3))
def test_deviations_are_those_of_greatest_posterior_density(monkeypatch, seed):
    """The gradient of the log posterior is 0 at the estimate.

    The gradient of the likelihood alone is far from 0 there: fourteen rows say little.
    """
    monkeypatch.setattr(additive_categorical, "LEARNING_STEPS", 600)
    monkeypatch.setattr(additive_categorical, "LEARNING_RATE", 0.03)
    terms, rows = TERMS[:3], drawn(14, seed)
    values = np.random.default_rng(seed + 5).normal(0.0, 0.1, 14)
    fitted, noise = additive_categorical._map_estimate(rows, values, terms, 0.05)
    start = np.log([*(t.deviation for t in terms), 0.05])
    found = np.log([*(t.deviation for t in fitted), noise])
    one = [Term(t.keys, t.shape, 1.0) for t in terms]
    grams = [covariance(rows, rows, [t]) for t in one]

    def gram(sizes):
        return sum(v * g for v, g in zip(np.exp(2 * sizes[:-1]), grams, strict=True))

    robust_weights = np.ones(14)
    for _ in range(200):
        variances = noise**2 / robust_weights + JITTER
        errors = (
            noise**2 / robust_weights * np.linalg.solve(gram(found) + np.diag(variances), values)
        )
        robust_weights = (DEGREES_OF_FREEDOM + 1) / (DEGREES_OF_FREEDOM + (errors / noise) ** 2)

    def density(sizes, prior=True):
        whole = gram(sizes) + np.diag(np.exp(2 * sizes[-1]) / robust_weights + JITTER)
        likelihood = multivariate_normal.logpdf(values, np.zeros(14), whole)
        return likelihood - 0.5 * prior * ((sizes - start) ** 2).sum()

    np.testing.assert_allclose(approx_fprime(found, density), 0.0, atol=0.05)
    assert np.abs(approx_fprime(found, lambda sizes: density(sizes, False))).max() > 0.3


def test_values_that_never_vary_do_not_drive_the_noise_to_nothing():
    """Four equal values do not prove that a fifth one is equal: the prior bounds the noise."""
    found = AdditiveCategoricalProcess.fit(drawn(4), np.zeros(4), TERMS[:2], noise=0.05)
    assert found.noise > 0.05 * np.exp(-4.5)
