"""Each Gaussian process answers as scikit-learn's does under the same covariance."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, WhiteKernel

from forerun.models.adaptation.error_process import (
    ACROSS_STRATA,
    NETWORK_EXPERTS,
    OPERATOR_EXPERTS,
    SAME_GROUP,
    ErrorProcess,
    Offsets,
)
from forerun.models.adaptation.support_set import SupportSet, suggest
from forerun.models.gaussian_process.regression import (
    FREEDOM,
    Covariance,
    GaussianProcessRegression,
    Posterior,
    _loss,
    combine,
    distances,
    log_density,
    matern,
    mean_weights,
    posterior_weights,
    same,
    squared_exponential,
    weighted_sum,
)
from forerun.models.hls_designs.gaussian_process import (
    DRAWS,
    DesignGaussianProcess,
    DesignInputs,
    _centred,
    _draws,
    _size,
)
from forerun.models.serving.fit import MixedEffectsProcess, StandardDeviations
from tests.models.gaussian_process.reference_processes import (
    OnColumns,
    SameCode,
    constant,
    reference,
)

SEEDS = st.integers(0, 2**16)
JITTER = 1e-8


def drawn(seed, n=18, columns=4):
    return np.random.default_rng(seed).normal(size=(n, columns))


def values_of(seed, n=18):
    return np.random.default_rng(seed + 1).normal(1.0, 0.7, n)


@given(SEEDS, st.floats(0.2, 5.0))
@settings(max_examples=20)
def test_covariances_are_scikit_learns(seed, length):
    one, other = drawn(seed), drawn(seed + 1, 7)
    apart = distances(one, other)
    np.testing.assert_allclose(apart, cdist(one, other), atol=1e-7)
    for smoothness in (0.5, 1.5, 2.5):
        expected = Matern(length, nu=smoothness)(one, other)
        np.testing.assert_allclose(matern(apart / length, smoothness), expected, atol=1e-7)
    found = squared_exponential(one, other, length)
    np.testing.assert_allclose(found, RBF(length)(one, other), atol=1e-12)
    codes = np.arange(18) % 4
    rows = np.column_stack([one, codes])
    np.testing.assert_array_equal(same(codes, codes), SameCode(4)(rows))
    weights = np.array([0.1, 0.5, 0.3, 0.2])
    found, expected = weighted_sum(weights, KERNELS, one, other), summed(weights)
    np.testing.assert_allclose(found, expected(one, other), atol=1e-12)
    diagonal = weights @ [kernel.diagonal(one) for kernel in KERNELS]
    np.testing.assert_allclose(diagonal, expected.diag(one), atol=1e-12)


@given(SEEDS, st.floats(0.01, 1.0))
@settings(max_examples=20)
def test_a_posterior_is_scikit_learns(seed, noise):
    rows, asked, values = drawn(seed), drawn(seed + 2, 9), values_of(seed)
    kernel = Matern(nu=1.5)
    found = Posterior.of(kernel(rows), noise, values)
    mean, covariance = reference(kernel, rows, values, noise).predict(asked, return_cov=True)
    np.testing.assert_allclose(found.mean(kernel(asked, rows)), mean, atol=1e-8)
    variance = found.variance(kernel(asked, rows), kernel.diag(asked))
    np.testing.assert_allclose(variance, np.diag(covariance), atol=1e-8)
    likelihood = reference(kernel, rows, values, noise).log_marginal_likelihood_value_
    assert found.log_likelihood == pytest.approx(likelihood)
    np.testing.assert_allclose(mean_weights(kernel(rows), noise, values), found.weights)


@given(SEEDS, st.lists(st.booleans(), min_size=18, max_size=18).filter(any))
@settings(max_examples=30)
def test_a_group_left_out_is_predicted_as_by_a_refit_without_it(seed, held_out):
    held, values, noise = np.array(held_out), values_of(seed), 0.1
    covariance = Matern(nu=1.5)(drawn(seed))
    whole = Posterior.of(covariance, noise, values)
    mean, spread = whole.without_group(held)
    cross = covariance[np.ix_(held, ~held)]
    rest = Posterior.of(covariance[np.ix_(~held, ~held)], noise, values[~held])
    np.testing.assert_allclose(mean, rest.mean(cross), atol=1e-9)
    unknown = rest.variance(cross, np.ones(held.sum())) + noise
    np.testing.assert_allclose(np.diag(spread), unknown)


@given(st.lists(st.floats(-1e5, 1e5), min_size=1, max_size=20))
def test_weights_by_likelihood_add_up_to_one_and_have_its_ratios(logs):
    weights = posterior_weights(np.array(logs))
    assert weights.sum() == pytest.approx(1.0)
    ratios = np.exp(np.array(logs) - max(logs))
    np.testing.assert_allclose(weights / weights.max(), ratios, atol=1e-300)  # subnormals


# ---- a sum of covariances whose weights are fitted ----

KERNELS = (
    Covariance("constant", prior=(-2.0, 1.0)),
    Covariance("linear", prior=(-1.0, 1.5)),
    Covariance("radial", length=1.3, prior=(-1.5, 0.8)),
    Covariance("radial", (1, 3), length=0.7, prior=(-3.0, 1.2)),
)
NOISE_PRIOR = (-4.0, 1.5)


def summed(weights):
    """The same covariance by scikit-learn, with the weights as its hyperparameters."""
    bounds = (1e-9, 1e9)
    terms = (
        None,
        DotProduct(0.0, "fixed"),
        RBF(1.3 * np.sqrt(4.0), "fixed"),
        OnColumns(RBF(0.7 * np.sqrt(2.0), "fixed"), 1, 3),
    )
    weights = np.asarray(weights) / [1.0, 4.0, 1.0, 1.0]
    found = ConstantKernel(weights[0], bounds)
    for weight, term in zip(weights[1:], terms[1:], strict=True):
        found = found + ConstantKernel(weight, bounds) * term
    return found


@given(SEEDS)
@settings(max_examples=15)
def test_mean_and_variance_under_given_weights_are_scikit_learns(seed):
    rows, values, asked = drawn(seed), values_of(seed), drawn(seed + 2, 9)
    random = np.random.default_rng(seed)
    weights, noise, known = np.exp(random.normal(-1.0, 1.0, 4)), 0.07, random.uniform(0, 0.2, 18)
    found = (
        GaussianProcessRegression(KERNELS)
        .with_weights(rows, values, weights, noise, known)
        .predict(asked)
    )
    process = reference(summed(weights), rows, values - values.mean(), known + noise + JITTER)
    mean, deviation = process.predict(asked, return_std=True)
    np.testing.assert_allclose(found.mean, values.mean() + mean, atol=1e-7)
    np.testing.assert_allclose(found.variance, deviation**2 + noise, atol=1e-7)


@given(SEEDS)
@settings(max_examples=15)
def test_a_row_left_out_is_answered_as_scikit_learn_does_without_it(seed):
    rows, values = drawn(seed, 8), values_of(seed, 8)
    weights, noise = np.array([0.2, 0.5, 0.3, 0.4]), 0.1
    found = (
        GaussianProcessRegression(KERNELS)
        .with_weights(rows, values, weights, noise)
        .leave_one_out()
    )
    for row in range(8):
        rest = np.arange(8) != row
        process = reference(summed(weights), rows[rest], values[rest] - values.mean(), noise)
        mean, deviation = process.predict(rows[row : row + 1], return_std=True)
        assert found.mean[row] == pytest.approx(values.mean() + mean[0], abs=1e-6)
        assert found.variance[row] == pytest.approx(deviation[0] ** 2 + noise, rel=1e-6)


def log_prior(logs):
    pairs = [*(k.prior for k in KERNELS), NOISE_PRIOR]
    return sum(norm.logpdf(x, *pair) for x, pair in zip(logs, pairs, strict=True))


@given(SEEDS)
@settings(max_examples=15)
def test_marginal_likelihood_and_its_gradient_are_scikit_learns(seed):
    rows, values = drawn(seed), values_of(seed)
    logs = np.random.default_rng(seed).normal(-1.0, 1.0, 5)
    far = np.full(5, 1e9)
    grams = np.array([kernel.between(rows, rows) for kernel in KERNELS])
    # A prior without an opinion leaves the marginal likelihood alone.
    loss, slope = _loss(logs, grams, values - values.mean(), np.zeros(18), np.zeros(5), far)
    kernel = summed(np.exp(logs[:-1])) + WhiteKernel(np.exp(logs[-1]), (1e-9, 1e9))
    process = reference(kernel, rows, values - values.mean(), JITTER)
    wanted, gradient = process.log_marginal_likelihood(kernel.theta, eval_gradient=True)
    assert -loss - 0.5 * 18 * np.log(2 * np.pi) == pytest.approx(wanted, rel=1e-7, abs=1e-6)
    np.testing.assert_allclose(-slope, gradient, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_weights_are_those_of_greatest_posterior_density(seed):
    """The marginal likelihood is scikit-learn's, the priors are scipy's; small steps all lose."""
    rows, values = drawn(seed), values_of(seed)
    found = GaussianProcessRegression(KERNELS, NOISE_PRIOR).fit(rows, values)

    def density(logs):
        kernel = summed(np.exp(logs[:-1])) + WhiteKernel(np.exp(logs[-1]), (1e-9, 1e9))
        process = reference(kernel, rows, values - values.mean(), JITTER)
        return process.log_marginal_likelihood(kernel.theta) + log_prior(logs)

    at = np.log([*found.weights, found.noise])
    for step in np.vstack([0.2 * np.eye(5), -0.2 * np.eye(5)]):
        assert density(at + step) < density(at)


def test_suggested_rows_leave_the_least_variance_one_by_one():
    kernels = (Covariance("constant"), Covariance("linear"), Covariance("radial", length=2.0))
    weights, places, noise = np.array([0.1, 0.5, 0.1]), drawn(3, 30), 0.05
    chosen = suggest(places, kernels, weights, noise, 5, 0, spread=0.0)
    for step in range(5):

        def left(row, before=tuple(chosen[:step])):
            measured = [*before, row]
            process = GaussianProcessRegression(kernels).with_weights(
                places[measured], np.zeros(len(measured)), weights, noise
            )
            return process.predict(places).variance.sum()

        free = [row for row in range(30) if row not in chosen[:step]]
        assert left(chosen[step]) == pytest.approx(min(map(left, free)), rel=1e-6)


# ---- errors of a device: a level, strata, a trend and a smooth part ----


def support(seed, comparable, n=12):
    random = np.random.default_rng(seed)
    strata = [("eager", "compiled")[i % 2] for i in range(n)]
    keys = [f"model {i // 2}" for i in range(n)]
    features = np.repeat(random.normal(size=(n // 2, 3)), 2, axis=0)
    return SupportSet.of(0.1 * random.normal(size=n), strata, features, keys, comparable)


def of_expert(expert, width, shared):
    """Features first, then the code of the stratum, then that of the group."""
    features = slice(0, width)
    same = SameCode(width)
    mix = constant(shared + 1e-12) + constant(1.0 - shared + 1e-12) * same
    length = expert.length * np.sqrt(width)
    parts = constant(0.5 * expert.level) * (constant(1.0) + same)
    if expert.trend:
        product = OnColumns(DotProduct(0.0, "fixed"), features.start, features.stop)
        parts = parts + constant(expert.trend / width) * mix * product
    if expert.smooth:
        curve = OnColumns(Matern(length, "fixed", nu=1.5), features.start, features.stop)
        parts = parts + constant(expert.smooth) * mix * curve
    return parts + constant(SAME_GROUP * expert.noise) * same * SameCode(width + 1)


@pytest.mark.parametrize("comparable", [True, False])
@pytest.mark.parametrize("expert", [*OPERATOR_EXPERTS[::9], *NETWORK_EXPERTS[::11]])
def test_an_experts_error_is_scikit_learns(expert, comparable):
    rows = support(0, comparable)
    offsets = Offsets(0.0, {}, 1e9)
    found = ErrorProcess.fit(rows, [expert], np.ones(1), offsets)
    asked, strata = drawn(5, 6, 3), np.array(["eager", "compiled", "training"] * 2)
    names = np.unique([*rows.strata, *strata]).tolist()

    def matrix(features, strata, groups):
        codes = [names.index(str(s)) for s in strata]
        return np.column_stack([features, codes, groups])

    kernel = of_expert(expert, 3, ACROSS_STRATA if comparable else 0.0)
    noise = (1.0 - SAME_GROUP) * expert.noise
    known = matrix(rows.features, rows.strata, rows.groups)
    process = reference(kernel, known, rows.errors, noise)
    mean = process.predict(matrix(asked, strata, np.full(6, -1.0)))
    np.testing.assert_allclose(found.at(strata, asked), mean, atol=1e-6)


@given(SEEDS)
@settings(max_examples=20)
def test_densities_and_mixtures_are_students_and_the_moments_of_samples(seed):
    random = np.random.default_rng(seed)
    errors, variances = random.normal(size=(3, 5)), random.uniform(0.1, 2.0, (3, 5))
    wanted = student.logpdf(errors, FREEDOM, scale=np.sqrt(variances))
    np.testing.assert_allclose(log_density(errors, variances), wanted)
    weights = random.dirichlet(np.ones(3))
    mean, variance = combine(weights, errors, variances)
    second = weights @ (variances + errors**2)
    np.testing.assert_allclose(mean, weights @ errors)
    np.testing.assert_allclose(variance, second - mean**2)


# ---- designs of one program ----


def designs(seed, n):
    random = np.random.default_rng(seed)
    return DesignInputs(
        (random.normal(size=(n, 2)), random.normal(size=(n, 3)), random.normal(size=(n, 4))),
        random.normal(2.0, 1.0, n),
    )


def test_designs_are_answered_by_scikit_learns_processes_weighted_by_their_likelihoods():
    shown, asked = designs(0, 14), designs(1, 6)
    values = 5.0 + 3.0 * np.random.default_rng(2).normal(size=14)
    wanted = (values - values.mean()) / values.std()

    def matrix(places):
        parts = [w / _size(s) for w, s in zip(places.feature_sets, shown.feature_sets, strict=True)]
        return np.hstack([*parts, _centred(places.answer, shown.answer)[:, None]])

    likelihood, means, variances = np.empty(DRAWS), [], []
    for number, one in enumerate(np.exp(_draws(0))):
        linear = OnColumns(DotProduct(0.0, "fixed"), 9, 10)
        kernel = constant(1.0) + constant(one[0]) * linear
        for way, (first, after) in enumerate(((0, 2), (2, 5), (5, 9))):
            curve = OnColumns(Matern(one[4 + way], "fixed", nu=2.5), first, after)
            kernel = kernel + constant(one[1 + way]) * curve
        process = reference(kernel, matrix(shown), wanted, one[-1])
        likelihood[number] = process.log_marginal_likelihood_value_
        mean, deviation = process.predict(matrix(asked), return_std=True)
        means.append(mean)
        variances.append(deviation**2 + one[-1])
    shares = np.exp(likelihood - likelihood.max())
    # Settings of little weight are left out; this one must leave out the same.
    shares[shares / shares.sum() < 0.002] = 0.0
    mean, variance = combine(shares / shares.sum(), np.array(means), np.array(variances))
    process = DesignGaussianProcess.of(shown, values)
    assert process.shares.sum() == pytest.approx(1.0)
    found = process.predict(asked)
    np.testing.assert_allclose(found[0], values.mean() + values.std() * mean, rtol=1e-6)
    np.testing.assert_allclose(found[1], values.std() * np.sqrt(variance), rtol=1e-6)


# ---- serving: models as groups with an effect of their own ----


@given(SEEDS)
@settings(max_examples=10)
def test_models_with_effects_of_their_own_are_answered_as_by_scikit_learn(seed):
    rows, asked = drawn(seed).round(6), drawn(seed + 1, 5).round(6)
    values = np.column_stack([values_of(seed), values_of(seed + 7)])
    codes = np.arange(18) // 3
    spread = StandardDeviations(0.6, 0.3, 0.2, 0.1)
    found = MixedEffectsProcess.fit(rows, values, codes.astype(str), spread).predict(asked)
    centre = rows.mean(axis=0).round(9)
    smooth = constant(spread.smooth**2) * OnColumns(RBF(1.0, "fixed"), 0, 4)
    trend = constant(1.0) + constant(1.0 / 4) * OnColumns(DotProduct(0.0, "fixed"), 0, 4)
    kernel = smooth + constant(spread.linear**2) * trend + constant(spread.group**2) * SameCode(4)
    known = np.column_stack([rows - centre, codes])
    new = np.column_stack([asked - centre, np.full(5, -1.0)])
    for target in range(2):
        level = np.median(values[:, target])
        process = reference(kernel, known, values[:, target] - level, spread.noise**2)
        np.testing.assert_allclose(found[:, target], level + process.predict(new), atol=1e-5)
