"""Live errors are those of the answers: of the measured value, with a bias and a coverage."""

import numpy as np
import pytest

from forerun.training.monitoring.slices import LiveError
from forerun.training.scores.errors import score

NAN = float("nan")


def test_errors_are_those_of_an_evaluation_of_the_same_rows():
    measured, answered = np.array([10.0, 20.0, 40.0]), np.array([11.0, 15.0, 44.0])
    low, high = answered * 0.9, answered * 1.1
    inside = ((low <= measured) & (measured <= high)).astype(float)
    live = LiveError.of(np.log(measured / answered), inside)
    same = score(measured, answered, low, high)
    assert live.mape == pytest.approx(same["mape"])
    assert live.median_ape == pytest.approx(same["median_ape"])
    assert live.coverage_90 == pytest.approx(same["coverage_90"])
    assert (live.rows, live.rows_with_interval) == (3, 3)


def test_the_bias_is_the_median_and_above_0_where_runs_take_longer_than_answered():
    assert LiveError.of(np.log([1.2, 1.2, 0.5]), np.zeros(3)).bias == pytest.approx(np.log(1.2))


def test_coverage_counts_answers_with_an_interval_alone():
    live = LiveError.of(np.zeros(4), np.array([1.0, NAN, 0.0, NAN]))
    assert (live.rows_with_interval, live.coverage_90) == (2, 50.0)
    none = LiveError.of(np.zeros(2), np.array([NAN, NAN]))
    assert (none.rows_with_interval, none.coverage_90) == (0, None)


@pytest.mark.parametrize("ratios", [[], [NAN], [np.inf]])
def test_no_row_and_numbers_that_are_not_finite_are_refused(ratios):
    with pytest.raises(ValueError, match="finite log ratios"):
        LiveError.of(np.array(ratios, dtype=np.float64), np.zeros(len(ratios)))
