"""Error rates of a class, counted by hand, and when the class stands for an interval."""

import numpy as np

from forerun.models.colocation.slowed_class import (
    FEWEST_OF_EACH,
    SLOWED_BELOW,
    WIDEST_RATIO,
    ClassErrors,
    classes,
)


def runs(slowed=10, others=10, missed=0, alarms=0):
    """Measured and predicted relative speeds, with as many misses and false alarms."""
    measured = np.array([0.5] * slowed + [1.0] * others)
    predicted = measured.copy()
    predicted[:missed] = 1.0
    predicted[slowed : slowed + alarms] = 0.5
    return measured, predicted


def test_rates_are_shares_of_each_class():
    found = ClassErrors.of(*runs(20, 10, missed=5, alarms=1))
    assert (found.misses, found.false_alarms, found.rows) == (0.25, 0.1, 30)


def test_fewer_than_ten_runs_of_either_class_say_nothing():
    assert ClassErrors.of(*runs(FEWEST_OF_EACH - 1, 50)) is None
    assert ClassErrors.of(*runs(50, FEWEST_OF_EACH - 1)) is None
    assert ClassErrors.of(*runs(FEWEST_OF_EACH, FEWEST_OF_EACH)) is not None


def test_runs_without_a_prediction_are_left_out():
    measured, predicted = runs(11, 11, missed=1)
    predicted[0] = np.nan
    assert ClassErrors.of(measured, predicted).misses == 0.0
    measured[1] = np.nan
    assert ClassErrors.of(measured, predicted) is None


def test_rates_are_those_of_wide_intervals_where_there_are_enough():
    narrow, wide = runs(20, 20), runs(10, 10, missed=5)
    measured, predicted = np.concatenate([narrow, wide], axis=1)
    ratio = np.array([WIDEST_RATIO] * 40 + [WIDEST_RATIO + 0.01] * 20)
    assert ClassErrors.where_wide(measured, predicted, ratio).misses == 0.5
    few = np.concatenate([np.ones(50), np.full(10, 9.0)])
    assert ClassErrors.where_wide(measured, predicted, few).misses == 5 / 30


def test_a_class_replaces_an_interval_that_is_withheld():
    rates = ClassErrors(0.1, 0.2, 40)
    values = np.array([SLOWED_BELOW - 0.01, SLOWED_BELOW, 0.5, 0.5])
    low = np.array([np.nan, np.nan, 0.4, np.nan])
    found = classes(values, low, [rates, rates, rates, None])
    assert [one and one.slowed for one in found] == [True, False, None, None]
    assert found[0].errors == rates
