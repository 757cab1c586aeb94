"""Intervals have their nominal coverage on new rows, and contain the value that they are of."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.models.conformal import Intervals, LogQuantiles


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=60), st.floats(0.01, 1e4))
def test_the_value_is_always_inside(residuals, value):
    quantiles = LogQuantiles.of(np.array(residuals), np.full(len(residuals), "a"))
    low, high = quantiles.around(np.array([value]), ["a"])
    assert low[0] <= value <= high[0]


def test_a_stratum_with_few_rows_takes_the_pooled_quantiles():
    residuals = np.concatenate([np.full(5, 3.0), np.linspace(-0.1, 0.1, 500)])
    strata = np.array(["rare"] * 5 + ["common"] * 500)
    quantiles = LogQuantiles.of(residuals, strata)
    assert "rare" not in quantiles.bounds
    assert quantiles.around(np.ones(1), ["rare"])[1] == quantiles.around(np.ones(1), ["new"])[1]


def test_an_unseen_device_takes_the_wider_interval():
    intervals = Intervals(LogQuantiles({"all": (-0.1, 0.1)}), LogQuantiles({"all": (-0.5, 0.7)}))
    low, high = intervals.around(np.ones(2), ["a", "a"], np.array([True, False]))
    np.testing.assert_allclose(low, np.exp([-0.1, -0.5]))
    np.testing.assert_allclose(high, np.exp([0.1, 0.7]))


def test_bounds_of_scaled_residuals_grow_with_the_scale():
    """On other devices the bounds have a constant width."""
    intervals = Intervals(LogQuantiles({"all": (-0.1, 0.2)}), LogQuantiles({"all": (-0.5, 0.7)}))
    values, scale = np.array([2.0, 3.0, 5.0]), np.array([1.0, 3.0, 3.0])
    low, high = intervals.around(values, ["a"] * 3, np.array([True, True, False]), scale)
    np.testing.assert_allclose(low, values * np.exp([-0.1, -0.3, -0.5]))
    np.testing.assert_allclose(high, values * np.exp([0.2, 0.6, 0.7]))


@pytest.mark.parametrize("n", [30, 100, 300])
@pytest.mark.parametrize("coverage", [0.8, 0.9])
def test_bounds_are_those_of_crepes(n, coverage):
    crepes = pytest.importorskip("crepes", reason="crepes is in the dev extra")
    residuals = np.random.default_rng(n).normal(0.2, 1.0, n)
    reference = crepes.ConformalPredictiveSystem().fit(residuals)
    with np.errstate(all="ignore"):
        ends = reference.predict_int(np.zeros(1), confidence=coverage)[0]
    found = np.array(LogQuantiles.of(residuals, coverage=coverage).bounds["all"])
    # Where n is too small for a bound, crepes says infinity and this the farthest residual.
    finite = np.isfinite(ends)
    np.testing.assert_allclose(found[finite], ends[finite])
    assert (found[~finite] == np.array([residuals.min(), residuals.max()])[~finite]).all()


def test_rows_of_a_declared_group_count_once():
    """Thirty groups of fifty equal residuals have the bounds of thirty residuals."""
    residuals = np.random.default_rng(0).normal(size=30)
    groups = np.arange(30).astype(str)
    once = LogQuantiles.of(residuals, groups=groups)
    assert once == LogQuantiles.of(residuals)
    assert LogQuantiles.of(np.repeat(residuals, 50), groups=np.repeat(groups, 50)) == once
    assert LogQuantiles.of(np.repeat(residuals, 50)) != once
