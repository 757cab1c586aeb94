"""Settings of a suite as features, and the power law that extrapolates them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.models.benchmark_suites.scores import PowerLaw, Settings

ROWS = [
    {"n": n, "k": k, "mode": m} for n, k, m in ((1.0, 8.0, "a"), (4.0, 2.0, "b"), (16.0, 4.0, "a"))
]
SETTINGS = Settings.of(ROWS)


def test_columns_are_numbers_logarithms_sums_differences_and_a_column_for_each_choice():
    assert SETTINGS.ranges.names == ("k", "n")
    assert SETTINGS.choices == {"mode": ("a", "b")}
    k, n = np.log([8.0, 1.0])
    expected = [8.0, 1.0, k, n, k + n, k - n, 1.0, 0.0]
    assert SETTINGS.matrix(ROWS)[0].tolist() == pytest.approx(expected)
    assert SETTINGS.matrix(ROWS)[:, -1].tolist() == [0.0, 1.0, 0.0]


def test_what_is_not_given_or_not_known_has_no_number():
    row = SETTINGS.matrix([{"n": 4.0, "mode": "c"}])[0]
    assert np.isnan(row[[0, 2, 4, 5]]).all()
    assert row[6:].tolist() == [0.0, 0.0]
    assert row[[1, 3]].tolist() == pytest.approx([4.0, np.log(4.0)])
    limits = SETTINGS.limits({"n": 4.0, "mode": "c", "x": 1.0})
    assert tuple(map(str, limits)) == (
        "k is not given",
        "x is not known",
        "mode is 'c', which training did not see",
    )


def test_settings_beyond_their_range_are_named():
    assert SETTINGS.limits(ROWS[0]) == ()
    assert SETTINGS.limits({"n": 16.0, "k": 8.0, "mode": "a"}) == ()
    (line,) = SETTINGS.limits({"n": 16.1, "k": 8.0, "mode": "a"})
    assert str(line) == "n is 16.1; the training set has 1 to 16"


def test_many_settings_have_no_pairs():
    """Products of every pair hide the settings themselves from boosters of few rows."""
    wide = Settings.of([dict(**{f"s{i}": 1.0 + i * j for i in range(9)}) for j in (1, 2)])
    assert wide.matrix(ROWS).shape == (3, 18)


def test_settings_that_reach_zero_have_no_logarithm():
    reaching = Settings.of([{"n": 0.0, "k": 1.0}, {"n": 4.0, "k": 2.0}])
    assert reaching.logarithms([{"n": 4.0, "k": 2.0}]).tolist() == [[pytest.approx(np.log(2.0))]]
    assert np.isnan(SETTINGS.logarithms([{"n": -1.0, "k": 2.0}])[0, 1])


@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(-2, 2))
def test_a_power_law_is_recovered_and_extrapolated(first, second, level):
    logs = np.random.default_rng(0).normal(2.0, 1.0, (4000, 2))
    law = PowerLaw.fit(logs, level + logs @ [first, second])
    assert law.exponents == pytest.approx((first, second), abs=2e-3)
    far = np.array([[20.0, -20.0]])
    assert law.predict(far)[0] == pytest.approx(level + 20 * first - 20 * second, abs=0.1)


def test_exponents_are_shrunken_by_one_row_of_ridge():
    """Standardised rows of +1 and -1: the slope is 2 of 2 + 1 observations."""
    law = PowerLaw.fit(np.array([[-1.0], [1.0]]), np.array([-3.0, 3.0]))
    assert law.exponents[0] == pytest.approx(3.0 * 2 / 3)
    assert (law.level, law.middle) == (0.0, (0.0,))
    wide = PowerLaw.fit(np.array([[-10.0], [10.0]]), np.array([-3.0, 3.0]))
    assert wide.exponents[0] == pytest.approx(0.3 * 2 / 3), "a unit of the setting is no matter"


def test_a_setting_that_is_not_given_or_never_varies_changes_nothing():
    logs = np.array([[0.0, 5.0], [1.0, 5.0], [2.0, 5.0]])
    law = PowerLaw.fit(logs, np.array([1.0, 2.0, 3.0]))
    assert law.exponents[1] == 0.0
    assert law.predict(np.array([[np.nan, 9.0]]))[0] == pytest.approx(2.0)
