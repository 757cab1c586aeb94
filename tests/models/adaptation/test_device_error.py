"""Adaptation holds out whole groups, prefers offsets, and narrows near the support set only."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.data.device import DeviceCatalog
from forerun.data.level import HALF_WIDTH
from forerun.models.adaptation.error_process import (
    NETWORK_EXPERTS,
    OPERATOR_EXPERTS,
    ErrorProcess,
    Gram,
    LeftOut,
    Offsets,
    leave_groups_out,
)
from forerun.models.adaptation.support_gp import DeviceError, SupportGP, process_share
from forerun.models.adaptation.support_set import SupportSet

L4 = DeviceCatalog.load().get("l4")
SHEET = (0.0, 0.0, 0.0)
MODES = ("eager", "compiled")


def models(count, seed, error=lambda x, mode: 0.0, noise=0.05, width=6):
    """Errors of `count` models, each measured in both execution modes."""
    rng = np.random.default_rng(seed)
    features = np.repeat(rng.normal(size=(count, width)), 2, axis=0)
    strata = list(MODES) * count
    keys = [f"model {i // 2}" for i in range(2 * count)]
    truth = np.array([error(x, mode) for x, mode in zip(features, strata, strict=True)])
    return truth + noise * rng.normal(size=2 * count), strata, features, keys


def on_device(errors, strata, features, keys):
    return DeviceError(SHEET, SupportSet.of(errors, strata, features, keys, comparable=True))


def by_mode(x, mode):
    return {"eager": 0.3, "compiled": -0.1}[mode]


@pytest.mark.parametrize("expert", [NETWORK_EXPERTS[3], NETWORK_EXPERTS[-1], OPERATOR_EXPERTS[0]])
def test_left_out_errors_are_those_of_a_fit_without_the_group(expert):
    rows = SupportSet.of(*models(5, 0, by_mode), comparable=True)
    left = leave_groups_out(rows, [expert])
    for group in np.unique(rows.groups):
        held = rows.groups == group
        rest = rows.take(np.flatnonzero(~held))
        alone = DeviceError(SHEET, rest)
        offsets = alone._fit.offsets
        np.testing.assert_allclose(
            left.by_offset[held], rows.errors[held] - offsets.at(rows.strata[held])
        )
        process = ErrorProcess.fit(rest, [expert], np.ones(1), offsets)
        mean = process.at(rows.strata[held], rows.features[held])
        np.testing.assert_allclose(left.by_process[held], rows.errors[held] - mean, atol=1e-9)


def test_left_out_errors_of_several_experts_are_those_of_each_alone():
    rows = SupportSet.of(*models(5, 0, by_mode), comparable=True)
    experts = [NETWORK_EXPERTS[-1], NETWORK_EXPERTS[3], NETWORK_EXPERTS[-5]]
    together = leave_groups_out(rows, experts)
    alone = [leave_groups_out(rows, [expert]) for expert in experts]
    assert (together.weights > 1e-6).all()
    mixed = together.weights @ [one.by_process for one in alone]
    np.testing.assert_allclose(together.by_process, mixed, rtol=1e-12)


def test_rows_of_one_model_do_not_vouch_for_each_other():
    # Each model has an error of its own in both modes: nothing carries over to other models.
    rng = np.random.default_rng(0)
    own = {i: 0.3 * rng.normal() for i in range(12)}
    errors, strata, features, keys = models(12, 0, noise=0.001)
    errors = errors + np.array([own[i // 2] for i in range(24)])
    found = on_device(errors, strata, features, keys)
    assert found.left_out_error > 0.1


@pytest.mark.slow
def test_offsets_answer_where_the_error_is_an_offset():
    found = [on_device(*models(10, seed, by_mode)) for seed in range(20)]
    assert np.mean([one._fit.share == 0.0 for one in found]) > 0.5
    fresh = np.random.default_rng(9).normal(size=(2, 6))
    means = [one.at(MODES, fresh, ["new", "new"])[0] for one in found if not one._fit.share]
    assert np.abs(np.array(means) - [0.3, -0.1]).max() < 0.08
    assert np.mean(means, axis=0) == pytest.approx([0.3, -0.1], abs=0.03)


def test_adapting_is_hardly_worse_than_medians_where_these_are_the_truth():
    wrong, median = [], []
    for seed in range(10):
        errors, strata, features, keys = models(10, seed, by_mode, noise=0.1)
        fresh, modes, points, _ = models(40, seed + 100, by_mode, noise=0.1)
        mean, _ = on_device(errors, strata, features, keys).at(modes, points, ["new"] * 80)
        wrong.append(np.abs(mean - fresh).mean())
        offsets = {m: np.median(errors[np.array(strata) == m]) for m in MODES}
        median.append(np.abs(fresh - [offsets[m] for m in modes]).mean())
    assert np.mean(wrong) <= 1.03 * np.mean(median)


def test_a_process_answers_where_the_error_follows_the_features():
    found = on_device(*models(15, 0, lambda x, mode: 0.3 * x[0] + 0.2 * x[1], noise=0.02))
    assert found._fit.share > 0.0


def test_one_model_far_off_moves_the_others_little():
    errors, strata, features, keys = models(10, 0, by_mode)
    wild = errors.copy()
    wild[:2] += 3.0
    fresh = np.random.default_rng(9).normal(size=(20, 6))
    before, after = (
        on_device(e, strata, features, keys).at(["eager"] * 20, fresh, ["new"] * 20)[0]
        for e in (errors, wild)
    )
    assert np.abs(after - before).mean() < 0.06


def test_the_process_must_win_by_more_than_the_noise():
    groups = np.arange(10)
    offset = np.full(10, 0.1)
    clear = LeftOut(offset, np.full(10, 0.05), np.ones(1))
    noisy = LeftOut(offset, 0.099 + 0.05 * np.tile([1.0, -1.0], 5), np.ones(1))
    assert process_share(clear, groups) == 1.0
    assert process_share(noisy, groups) == 0.0
    assert process_share(clear, np.zeros(10, dtype=np.intp)) == 0.0
    worse = LeftOut(np.full(10, 0.05), offset, np.ones(1))
    assert process_share(worse, groups, default=1.0) == 0.0, "offsets win as well"


def test_what_was_measured_is_reproduced_with_its_noise():
    errors, strata, features, keys = models(10, 0, by_mode, noise=0.15)
    mean, deviation = on_device(errors, strata, features, keys).at(strata, features, keys)
    assert np.abs(mean - errors).max() < 0.03
    assert deviation.max() < 0.06


def test_a_model_measured_in_one_mode_informs_about_the_other():
    errors, strata, features, keys = models(10, 0, by_mode)
    errors[0] += 0.4
    held = [i for i in range(20) if i != 1]
    found = on_device(
        errors[held], [strata[i] for i in held], features[held], [keys[i] for i in held]
    )
    known, new = (found.at(["compiled"], features[1:2], [name])[0][0] for name in ("model 0", "x"))
    assert 0.1 < known - new < 0.4


def test_a_measurement_sent_twice_counts_once():
    errors, strata, features, keys = models(6, 0, by_mode)
    twice = [
        np.concatenate([errors, errors]),
        strata * 2,
        np.vstack([features, features]),
        keys * 2,
    ]
    fresh = np.random.default_rng(9).normal(size=(5, 6))
    queried = (["eager"] * 5, fresh, ["new"] * 5)
    for one, other in zip(
        on_device(errors, strata, features, keys).at(*queried),
        on_device(*twice).at(*queried),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_points_far_from_the_support_set_keep_the_width_of_an_unseen_device():
    errors, strata, features, keys = models(10, 0, by_mode)
    found = on_device(errors, strata, features, keys)
    offsets = np.array([0.0, 1.0, 3.0, 10.0, 50.0])
    points = features[:1] + offsets[:, None]
    _, deviation = found.at(["eager"] * 5, points, ["new"] * 5)
    assert np.isfinite(deviation[0])
    assert np.isinf(deviation[-2:]).all()
    assert (np.diff(deviation[:3]) >= 0).all()
    values, low, high = np.ones(5), np.full(5, 0.5), np.full(5, 2.0)
    few = SupportGP((found,)).intervals(values, deviation, low, high)
    assert few[0][-1] == 0.5
    assert few[0][0] > 0.5


@pytest.mark.parametrize("offset", [1.9, 1.999999, 2.0, 2.000001, 1e6])
def test_a_deviation_is_infinite_long_before_its_exponential_overflows(offset):
    # Two groups, one unit apart: nearly two units away the width is divided by nearly nothing.
    features = np.array([[0.0], [1.0]])
    known = SupportGP().updated(np.array([0.7, 0.7]), [L4, L4], ["linear"] * 2, features)
    mean, deviation = known.correction([L4], ["linear"], np.array([[1.0 + offset]]))
    low, high = np.full(1, 0.1), np.full(1, 10.0)
    assert np.isfinite(deviation).all() == (offset < 1.95)
    nearer_low, nearer_high = known.intervals(np.exp(mean), deviation, low, high)
    assert (nearer_low >= 0.1).all() and (nearer_high <= 10.0).all()


def test_models_of_equal_features_say_nothing_about_others():
    errors, strata, features, keys = models(5, 0, by_mode)
    found = on_device(errors, strata, np.zeros_like(features), keys)
    points = np.array([[0.0], [0.01], [1.0]]) * np.ones(features.shape[1])
    _, deviation = found.at(["eager"] * 3, points, ["new"] * 3)
    assert np.isfinite(deviation).tolist() == [True, False, False]


def test_a_mode_that_was_not_measured_keeps_the_width_too():
    errors, strata, features, keys = models(10, 0, by_mode)
    found = on_device(errors, strata, features, keys)
    assert np.isinf(found.at(["training"], features[:1], ["new"])[1]).all()


@pytest.mark.slow
@pytest.mark.parametrize("count", [5, 10, 20])
def test_nine_in_ten_new_models_lie_inside(count):
    inside = []
    for seed in range(15):
        found = on_device(*models(count, seed, by_mode, noise=0.12))
        errors, strata, points, _ = models(30, seed + 500, by_mode, noise=0.12)
        mean, deviation = found.at(strata, points, ["new"] * 60)
        inside.append(np.abs(errors - mean) <= HALF_WIDTH * deviation)
    assert 0.85 <= np.mean(inside) <= 0.985


@pytest.mark.slow
@settings(max_examples=15)
@given(order=st.permutations(range(12)), seed=st.integers(0, 5))
def test_the_order_of_rows_is_free(order, seed):
    errors, strata, features, keys = models(6, seed, by_mode)
    mixed = errors[order], [strata[i] for i in order], features[order], [keys[i] for i in order]
    fresh = np.random.default_rng(9).normal(size=(4, 6))
    queried = (["eager", "compiled"] * 2, fresh, ["new"] * 4)
    one, other = (
        on_device(errors, strata, features, keys).at(*queried),
        on_device(*mixed).at(*queried),
    )
    np.testing.assert_allclose(one[0], other[0], atol=1e-8)
    np.testing.assert_allclose(one[1], other[1], rtol=1e-7)


@settings(max_examples=30)
@given(
    errors=st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=12),
    shift=st.floats(-0.5, 0.5),
)
def test_offsets_lie_between_nothing_and_the_medians(errors, shift):
    values = np.array(errors) * 0.01 + shift
    strata = np.array(["eager"] * len(values))
    found = Offsets.fit(values, strata, np.arange(len(values))).at(["eager"])[0]
    assert min(0.0, np.median(values)) - 1e-9 <= found <= max(0.0, np.median(values)) + 1e-9


def test_nothing_measured_changes_nothing():
    none = SupportGP().updated(np.array([np.nan]), [L4], ["eager"], np.zeros((1, 3)))
    assert none.devices == ()
    mean, deviation = none.correction([L4], ["eager"], np.zeros((1, 3)))
    assert mean.tolist() == [0.0]
    assert np.isnan(deviation).all()


def test_features_of_other_strata_count_only_where_they_are_comparable():
    rows = models(4, 0)
    for comparable in (True, False):
        support = SupportSet.of(*rows, comparable=comparable)
        gram = Gram.between(np.array(["training"]), support.features[:1], support)
        smooth = gram.covariance(OPERATOR_EXPERTS[-1]) - gram.covariance(OPERATOR_EXPERTS[1])
        assert (np.abs(smooth).max() > 1e-3) == comparable


def test_a_device_of_the_training_set_is_taken_to_have_no_level_until_rows_insist():
    """Experts with a free level have a tenth of the prior weight; clear errors restore it."""

    def share_with_level(size, known):
        errors = size * np.array([1.0, -0.5, 0.33, 1.0])
        rows = SupportSet.of(errors, ["linear"] * 4, np.arange(8.0).reshape(4, 2))
        process = DeviceError(SHEET, rows, known)._fit.process
        pairs = zip(process.weights, process.experts, strict=True)
        return sum(float(weight) for weight, expert in pairs if expert.level >= 0.04)

    assert share_with_level(0.02, known=True) < 0.4 * share_with_level(0.02, known=False)
    assert share_with_level(0.5, known=True) > 3 * share_with_level(0.02, known=True)


def test_a_level_that_all_rows_of_a_known_device_show_is_believed():
    errors, strata, features, keys = models(20, 0, lambda x, mode: 0.4, noise=0.02)
    rows = SupportSet.of(errors, strata, features, keys, comparable=True)
    mean, _ = DeviceError(SHEET, rows, known=True).at(["eager"], features[:1] + 0.1, ["new"])
    assert mean[0] == pytest.approx(0.4, abs=0.08)
