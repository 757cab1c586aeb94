"""Few-shot adaptation: support sets, scalars, processes of errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from scipy.stats import t as student

from forerun.data.level import HALF_WIDTH
from forerun.models.adaptation.error_process import (
    NETWORK_EXPERTS,
    OPERATOR_EXPERTS,
    ErrorProcess,
    LeftOut,
    Offsets,
    leave_groups_out,
)
from forerun.models.adaptation.shrunk_scalar import ShrunkScalars, shrunk_medians
from forerun.models.adaptation.support_gp import (
    PRIOR_DEVIATION,
    PRIOR_GROUPS,
    SELECTION,
    STRATUM_GROUPS,
    DeviceError,
    GroupDeviations,
    Standardizer,
    SupportGP,
    process_share,
)
from forerun.models.adaptation.support_set import SupportSet, farthest_points
from tests.devices import A10, L4, T4

# Few-shot corrections of a predictor by a support set, and their prediction intervals.


TRUTHS = {
    "nothing": lambda x: np.zeros(len(x)),
    "level": lambda x: np.full(len(x), 0.3),
    "trend": lambda x: 0.2 + 0.15 * x[:, 0],
    "smooth": lambda x: 0.2 * np.sin(2 * x[:, 0]) + 0.1 * np.cos(2 * x[:, 1]),
}


def drawn(truth, count, seed, noise=0.03):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, 4))
    return features, TRUTHS[truth](features) + noise * rng.normal(size=count)


def adapted(features, errors):
    n = len(errors)
    return SupportGP().updated(errors, [L4] * n, ["linear"] * n, features)


def support(truth, count, seed, comparable=False):
    features, errors = drawn(truth, count, seed)
    return SupportSet.of(errors, ["linear"] * count, features, None, comparable)


def error_on_new_rows(truth, count, seed, expert=None, comparable=False):
    """Mean absolute error on new rows, of the mixture or of one expert."""
    rows = support(truth, count, seed, comparable)
    points, wanted = drawn(truth, 200, seed + 1000, noise=0.0)
    if expert is None:
        return np.abs(
            DeviceError((0.0, 0.0, 0.0), rows).at(["linear"] * 200, points)[0] - wanted
        ).mean()
    offsets = Offsets.fit(rows.errors, rows.strata, rows.groups)
    alone = ErrorProcess.fit(rows, [expert], np.ones(1), offsets)
    return np.abs(alone.at(np.array(["linear"] * 200), points) - wanted).mean()


@pytest.mark.slow
@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize("count", [5, 20, 60])
@pytest.mark.parametrize("comparable", [False, True])
def test_it_is_never_worse_than_the_best_expert_or_none_beyond_noise(truth, count, comparable):
    seeds = range(5)
    experts = NETWORK_EXPERTS if comparable else OPERATOR_EXPERTS
    mixture = np.mean([error_on_new_rows(truth, count, s, None, comparable) for s in seeds])
    best = min(
        np.mean([error_on_new_rows(truth, count, s, expert) for s in seeds])
        for expert in experts[::4]
    )
    nothing = np.mean([np.abs(drawn(truth, 200, s + 1000, 0.0)[1]).mean() for s in seeds])
    assert mixture <= nothing + 0.02
    # The best is chosen with hindsight; five rows cannot tell a trend from a level.
    assert mixture <= best * (1.6 if count == 5 else 1.35) + 0.015


def test_rows_that_say_nothing_change_little():
    points, _ = drawn("nothing", 50, 99)
    few = [adapted(*drawn("nothing", 5, seed, noise=0.3)) for seed in range(10)]
    found = [f.correction([L4] * 50, ["linear"] * 50, points)[0] for f in few]
    assert np.abs(found).mean() < 0.5 * 0.3 * np.sqrt(2 / np.pi)


def test_nine_new_rows_in_ten_lie_inside_what_is_claimed():
    inside = []
    for seed in range(10):
        points, wanted = drawn("smooth", 200, seed + 1000)
        mean, deviation = adapted(*drawn("smooth", 20, seed)).correction(
            [L4] * 200, ["linear"] * 200, points
        )
        inside.append(np.abs(wanted - mean) < HALF_WIDTH * deviation)
    assert 0.82 <= np.mean(inside) <= 0.99


def test_other_devices_are_not_touched():
    features, errors = drawn("level", 20, 0)
    few = adapted(features, errors)
    mean, deviation = few.correction([T4] * 20, ["linear"] * 20, features)
    assert (mean == 0.0).all()
    assert np.isnan(deviation).all()
    assert (few.rows(T4), few.rows(L4)) == (0, 20)


def test_a_device_lends_half_its_level_to_strata_it_was_not_measured_in():
    features, errors = drawn("level", 20, 0)
    few = adapted(features, errors)
    own = few.correction([L4], ["linear"], features[:1])[0][0]
    other = few.correction([L4], ["softmax"], features[:1])[0][0]
    assert own == pytest.approx(0.3, abs=0.04)
    assert other == pytest.approx(0.5 * own, rel=0.2)


def test_new_rows_replace_older_ones_of_the_same_device():
    features, errors = drawn("level", 20, 0)
    once = adapted(features, errors)
    twice = once.updated(-errors, [L4] * 20, ["linear"] * 20, features)
    assert twice.correction([L4], ["linear"], features[:1])[0][0] < -0.2
    assert once.correction([L4], ["linear"], features[:1])[0][0] > 0.2


def test_an_erratic_device_is_called_so_and_a_plain_one_is_not():
    (line,) = adapted(*drawn("nothing", 20, 0, noise=0.8)).limits(L4)
    assert "20 measurements are too few to predict this device" in line.message
    assert adapted(*drawn("level", 20, 0)).limits(L4) == ()


def test_intervals_are_never_wider_than_those_of_a_new_device():
    few = adapted(*drawn("level", 20, 0))
    values, low, high = np.ones(3), np.full(3, 0.8), np.full(3, 1.3)
    found = few.intervals(values, np.array([0.01, 9.0, np.nan]), low, high)
    assert found[0].tolist() == pytest.approx([np.exp(-0.01 * HALF_WIDTH), 0.8, 0.8])
    assert found[1].tolist() == pytest.approx([np.exp(0.01 * HALF_WIDTH), 1.3, 1.3])


def test_strata_of_fewer_columns_keep_their_distances():
    matrix = np.random.default_rng(0).normal(size=(50, 3))
    narrow, wide = (Standardizer.of(matrix).apply(matrix, width) for width in (3, 12))
    assert wide.shape == (50, 12)
    apart = [np.linalg.norm(m[0] - m[1]) / np.sqrt(m.shape[1]) for m in (narrow, wide)]
    assert apart[0] == pytest.approx(apart[1])


def test_columns_that_never_varied_say_nothing():
    matrix = np.column_stack([np.ones(20), np.arange(20.0)])
    scale = Standardizer.of(matrix)
    assert scale.apply(np.array([[99.0, 9.5]]), 2).tolist() == [[0.0, 0.0]]


# Adaptation holds out whole groups, prefers offsets, and narrows near the support set only.


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


# Half-widths from a few held-out groups: Student quantiles for groups, not for rows.


def deviations_of(errors, rows_a_group=1):
    groups = np.repeat(np.arange(len(errors)), rows_a_group)
    repeated = np.repeat(errors, rows_a_group)
    return GroupDeviations.of(repeated, np.full(len(repeated), "eager"), groups)


def half_width(spread):
    return HALF_WIDTH * float(spread.deviation(np.array(["eager"]), np.zeros(1))[0])


@pytest.mark.parametrize("count", [3, 10, 30, 300])
def test_half_a_width_is_that_of_a_normal_whose_spread_is_known_from_so_many_groups(count):
    """The half-width is s t(n + prior) sqrt(1 + 1 / n) times `SELECTION`.

    s is the root mean square of the groups' errors and of pseudo-groups at the prior deviation.
    """
    errors = np.random.default_rng(count).uniform(-0.2, 0.2, count)
    pooled = PRIOR_GROUPS * PRIOR_DEVIATION**2 + (errors**2).sum()
    pooled /= PRIOR_GROUPS + count
    square = (STRATUM_GROUPS * pooled + (errors**2).sum()) / (STRATUM_GROUPS + count)
    quantile = student.ppf(0.95, STRATUM_GROUPS + count)
    wanted = SELECTION * quantile * np.sqrt(square * (1.0 + 1.0 / count))
    assert half_width(deviations_of(errors)) == pytest.approx(wanted, rel=1e-6)


def test_rows_of_one_group_do_not_count_as_groups():
    errors = np.array([0.1, -0.05, 0.2])
    assert half_width(deviations_of(errors, 50)) == pytest.approx(half_width(deviations_of(errors)))
    assert half_width(deviations_of(np.tile(errors, 50))) < 0.9 * half_width(deviations_of(errors))


# Corrections from few rows are shrunk towards none.


def test_a_correction_is_the_median_times_the_share_of_measured_rows():
    residuals = np.array([0.4, 0.2, 5.0, np.nan, -0.8, np.nan])
    strata = np.array(["a", "a", "a", "a", "b", "c"])
    found = shrunk_medians(residuals, strata, prior_rows=3.0)
    assert found == {"a": pytest.approx(0.4 * 3 / 6), "b": pytest.approx(-0.8 / 4)}


# Shrinkage: few rows change a device's level a little, many rows fully; other devices never.


def fitted(n, residual, stratum="linear"):
    return ShrunkScalars().updated(np.full(n, residual), [A10] * n, [stratum] * n)


@given(st.integers(1, 200), st.floats(-2, 2))
def test_a_correction_never_overshoots_what_was_measured(n, residual):
    (found,) = fitted(n, residual).correction([A10], ["linear"])
    assert abs(found) <= abs(residual) + 1e-12
    assert found * residual >= 0


def test_more_rows_shrink_less():
    sizes = [fitted(n, 1.0).correction([A10], ["linear"])[0] for n in (1, 5, 50, 1000)]
    assert sizes == sorted(sizes)
    assert sizes[-1] > 0.99


def test_a_class_without_rows_takes_the_devices_level():
    scalars = fitted(50, 0.5)
    assert 0.45 < scalars.correction([A10], ["softmax"])[0] < 0.5


def test_other_devices_stay_as_they_were():
    assert fitted(50, 0.5).correction([T4], ["linear"])[0] == 0.0


def test_new_rows_of_a_device_replace_its_old_ones():
    scalars = fitted(50, 0.5).updated(np.full(50, -0.5), [A10] * 50, ["linear"] * 50)
    assert scalars.correction([A10], ["linear"])[0] < -0.4
    assert scalars.rows(A10) == 50


def test_one_row_of_a_class_is_believed_less_than_the_level_of_the_device():
    """With three pseudo-observations at the device's level, one row gets a weight of a quarter."""
    residuals = np.array([0.0] * 30 + [1.0])
    strata = ["linear"] * 30 + ["softmax"]
    scalars = ShrunkScalars().updated(residuals, [A10] * 31, strata)
    (found,) = scalars.correction([A10], ["softmax"])
    assert 0.15 < found < 0.35


# Farthest-point sampling: each point is the farthest from those chosen and measured before it.


SEEDS = st.integers(0, 2**16)
COUNTS = st.integers(1, 30)


@given(SEEDS, COUNTS, COUNTS, st.booleans())
def test_each_point_is_the_farthest_from_all_before_it(seed, rows, count, is_measured):
    random = np.random.default_rng(seed)
    points, measured = random.normal(size=(rows, 2)), random.normal(size=(3, 2))
    if is_measured:
        chosen = farthest_points(points, count, measured=measured)
    else:
        chosen = farthest_points(points, count, [0], random=random)
    assert len(set(chosen)) == len(chosen) == min(rows, count)
    for step in range(0 if is_measured else 1, len(chosen)):
        before = points[chosen[:step]]
        taken = np.vstack([measured, before]) if is_measured else before
        nearest = cdist(points, taken).min(axis=1)
        assert nearest[chosen[step]] == pytest.approx(nearest.max(), abs=1e-6)


def test_equal_points_are_all_chosen_once():
    assert sorted(farthest_points(np.ones((4, 2)), 4, [2])) == [0, 1, 2, 3]


def test_ties_are_broken_at_random_where_a_generator_is_given():
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    seconds = {
        farthest_points(corners, 2, [0], random=np.random.default_rng(seed))[1]
        for seed in range(40)
    }
    assert seconds == {1, 2, 3, 4}
    assert farthest_points(corners, 2, [0])[1] == 1
