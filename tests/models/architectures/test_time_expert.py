"""`TimeExpert`: times that are linear in counts, predicted as log times."""

import numpy as np
import pytest

from forerun.models.architectures.latency import TimeExpert
from forerun.models.gaussian_process.regression import Covariance

TERMS = (Covariance("constant", prior=(-2.0, 1.0)), Covariance("linear", prior=(-2.0, 1.5)))
COUNTS = np.random.default_rng(0).normal(size=(220, 3))
TIMES_MS = 5.0 + COUNTS @ np.array([1.0, 0.6, 0.3])
SUPPORT, QUERIES = COUNTS[:20], COUNTS[20:]


def expert(times_ms: np.ndarray) -> TimeExpert:
    return TimeExpert.fit(TERMS, SUPPORT, times_ms, np.zeros(len(times_ms)))


def test_a_sum_over_operations_is_predicted_from_twenty_rows():
    found = expert(TIMES_MS[:20]).predict(QUERIES)
    np.testing.assert_allclose(np.exp(found.mean), TIMES_MS[20:], rtol=0.02)
    assert np.median(np.abs(found.mean - np.log(TIMES_MS[20:]))) < 0.005


def test_left_out_rows_are_predicted_without_themselves():
    times_ms = TIMES_MS[:20].copy()
    times_ms[3] *= 1.5
    left_out = expert(times_ms).leave_one_out()
    off = np.abs(left_out.mean - np.log(times_ms))
    assert np.argmax(off) == 3
    assert off[3] > 0.2


def test_a_device_that_is_twice_as_slow_has_the_same_predictions_times_two():
    one, two = expert(TIMES_MS[:20]).predict(QUERIES), expert(2 * TIMES_MS[:20]).predict(QUERIES)
    np.testing.assert_allclose(two.mean - one.mean, np.log(2.0))
    np.testing.assert_allclose(two.variance, one.variance)


def test_far_below_the_support_set_predictions_stay_finite_and_uncertain():
    found = expert(TIMES_MS[:20]).predict(np.full((1, 3), -20.0))
    assert np.isfinite(found.mean).all()
    assert found.mean[0] == pytest.approx(np.log(0.1 * TIMES_MS[:20].mean()))
    assert found.variance[0] <= 4.0
