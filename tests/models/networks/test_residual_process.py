"""Residuals of training networks are added to similar networks only."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern

from forerun.models.networks.residual_process import LENGTH, NOISE, NetworkResiduals, Residuals


def positions(count=20, width=5, seed=0):
    return np.random.default_rng(seed).normal(size=(count, width)).round(3)


def errors(count=20, seed=1):
    return np.random.default_rng(seed).normal(size=count)


def test_the_mean_is_that_of_a_gaussian_process():
    points, residuals, queried = 0.2 * positions(), errors(), 0.2 * positions(7, seed=2)
    kernel = Matern(length_scale=LENGTH, nu=0.5)
    reference = GaussianProcessRegressor(kernel, alpha=NOISE, optimizer=None)
    reference.fit(points.round(3), residuals)
    found = Residuals.of(points, residuals).at(queried)
    np.testing.assert_allclose(found, reference.predict(queried), atol=0.01)


def test_a_network_on_its_own_is_reproduced_but_for_the_noise():
    one = Residuals.of(np.zeros((1, 3)), np.array([0.6]))
    assert one.at(np.zeros((1, 3)))[0] == pytest.approx(0.6 / (1 + NOISE), abs=1e-3)


def test_nothing_is_added_far_from_all_training_networks():
    process = Residuals.of(0.2 * positions(), errors())
    assert np.abs(process.at(positions() + 20 * LENGTH)).max() < 1e-6


def test_runs_of_one_network_on_one_device_count_once():
    points, residuals = positions(4), errors(4)
    modes = np.array(["eager"] * 4)
    once = NetworkResiduals.fit(points, residuals, modes, np.arange(4))
    again = np.array([0, 1, 2, 3, 3, 3])
    often = NetworkResiduals.fit(points[again], residuals[again], modes[again.clip(0, 3)], again)
    np.testing.assert_allclose(often.at(points, modes), once.at(points, modes))


def test_execution_modes_do_not_mix():
    points, residuals = positions(6), errors(6)
    modes = np.array(["eager", "compiled"] * 3)
    both = NetworkResiduals.fit(points, residuals, modes, np.arange(6))
    alone = NetworkResiduals.fit(points[::2], residuals[::2], modes[::2], np.arange(3))
    np.testing.assert_allclose(both.at(points[::2], modes[::2]), alone.at(points[::2], modes[::2]))
    assert (both.at(points, np.array(["training"] * 6)) == 0).all()
