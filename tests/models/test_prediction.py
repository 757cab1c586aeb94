"""One row of answers: what is too wide to decide anything is withheld with a reason."""

import numpy as np
import pytest

from forerun.models.prediction import WIDEST_RATIO, Estimate, Predictions, too_wide


def answers(low, high, coverage=0.9, metric="latency_ms", **more):
    value = np.array([np.sqrt(low * high)])
    values = {metric: value} | {name: np.array([one]) for name, one in more.items()}
    return Predictions(values, {metric: np.array([low])}, {metric: np.array([high])}, coverage)


def test_an_interval_within_the_widest_ratio_is_answered():
    row = answers(1.0, WIDEST_RATIO)[0]
    assert row.estimates["latency_ms"].high == WIDEST_RATIO
    assert not row.withheld


def test_a_wider_one_is_withheld_with_its_width():
    row = answers(1.0, 277.0)[0]
    assert not row.estimates
    assert "spans a factor of 277" in row.withheld["latency_ms"]


def test_columns_keep_best_estimates_so_that_an_order_can_be_judged():
    wide = answers(1.0, 277.0)
    assert wide.values["latency_ms"][0] == pytest.approx(np.sqrt(277.0))


def test_energy_goes_with_the_time_that_it_follows_from():
    row = answers(1.0, 50.0, power_w=30.0, energy_j=2.0)[0]
    assert set(row.estimates) == {"power_w"}
    assert "which it follows from" in row.withheld["energy_j"]


def test_a_lower_end_of_zero_is_too_wide():
    assert too_wide("latency_cycles", Estimate(1.0, 0.0, 2.0, 0.9)) is not None


@pytest.mark.parametrize(
    ("metric", "coverage"), [("p_cpu", 0.9), ("util_dsp", 0.9), ("energy_j", None)]
)
def test_shares_and_ranges_without_a_claim_are_answered(metric, coverage):
    assert metric in answers(0.01, 1.0, coverage, metric)[0].estimates


def test_answers_without_an_interval_are_answered():
    assert Predictions({"latency_ms": np.array([3.0])})[0].estimates["latency_ms"].value == 3.0
