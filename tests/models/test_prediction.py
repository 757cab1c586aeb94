"""One row of answers: what is too wide to decide anything is withheld with a reason."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.models.limit import Limit
from forerun.models.prediction import (
    WIDEST_RATIO,
    Estimate,
    PredictionColumns,
    Predictions,
    too_wide,
)


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


def test_rows_that_are_always_answered_keep_wide_intervals_after_columns_are_joined():
    wide = answers(1.0, 277.0)
    columns = PredictionColumns(2, ["latency_ms"])
    columns.put([0], wide)
    columns.put([1], replace(wide, always=np.array([True])))
    joined = columns.predictions()
    assert not joined[0].estimates
    assert joined[1].estimates["latency_ms"].high == 277.0
    assert not joined[1].withheld


def test_columns_keep_best_estimates_so_that_a_ranking_can_be_scored():
    wide = answers(1.0, 277.0)
    assert wide.values["latency_ms"][0] == pytest.approx(np.sqrt(277.0))


def test_energy_goes_with_the_time_that_it_follows_from():
    row = answers(1.0, 50.0, power_w=30.0, energy_j=2.0)[0]
    assert set(row.estimates) == {"power_w"}
    assert "from which it is computed" in row.withheld["energy_j"]


def test_a_lower_end_of_zero_is_too_wide():
    assert too_wide("latency_cycles", Estimate(1.0, 0.0, 2.0, 0.9)) is not None


@pytest.mark.parametrize(
    ("metric", "coverage"), [("p_cpu", 0.9), ("util_dsp", 0.9), ("energy_j", None)]
)
def test_shares_and_ranges_without_a_claim_are_answered(metric, coverage):
    assert metric in answers(0.01, 1.0, coverage, metric)[0].estimates


def test_answers_without_an_interval_are_answered():
    assert Predictions({"latency_ms": np.array([3.0])})[0].estimates["latency_ms"].value == 3.0


def times(values, coverage=None, **others):
    values = np.array(values)
    ends = None if coverage is None else (values / 2, values * 2)
    return Predictions.of_metric("latency_ms", values, ends, coverage=coverage, **others)


def test_parts_of_different_rows_are_joined_in_the_order_of_the_rows():
    joined = PredictionColumns(3, ["latency_ms"])
    joined.put([2, 0], times([3.0, 1.0], 0.9, breakdowns_ms=[{"conv": 3.0}, {"conv": 1.0}]))
    joined.put([1], times([2.0], limits=[(Limit("far"),)]))
    rows = [joined.predictions()[row] for row in range(3)]
    assert [row.estimates["latency_ms"].value for row in rows] == [1.0, 2.0, 3.0]
    assert [row.estimates["latency_ms"].coverage for row in rows] == [0.9, None, 0.9]
    assert [row.breakdown_ms for row in rows] == [{"conv": 1.0}, {}, {"conv": 3.0}]
    assert [len(row.limits) for row in rows] == [0, 1, 0]


def test_the_first_prediction_of_a_metric_of_a_row_is_kept():
    joined = PredictionColumns(2, ["latency_ms", "power_w"])
    joined.put([0], times([1.0], 0.8))
    assert joined.lacking(["latency_ms"]).tolist() == [False, True]
    assert joined.lacking(["latency_ms", "power_w"]).tolist() == [True, True]
    joined.put([0, 1], times([5.0, 6.0], 0.9))
    rows = [joined.predictions()[row].estimates["latency_ms"] for row in range(2)]
    assert [(row.value, row.low, row.coverage) for row in rows] == [
        (1.0, 0.5, 0.8),
        (6.0, 3.0, 0.9),
    ]


def test_limits_of_several_parts_are_joined_without_duplicates():
    joined = PredictionColumns(1, ["latency_ms", "power_w"])
    near, far = Limit("near"), Limit("far")
    joined.put([0], times([1.0], limits=[(near,)]))
    joined.put([0], Predictions({"power_w": np.array([9.0])}, limits=[(near, far)]))
    assert joined.predictions().limits == [(near, far)]


def test_energy_is_the_product_of_power_and_time_and_so_are_its_ends():
    joined = PredictionColumns(1, ["latency_ms", "power_w", "energy_j"])
    joined.put([0], times([2000.0], 0.9))
    joined.put(
        [0], Predictions.of_metric("power_w", np.array([9.0]), (np.array([6.0]), np.array([12.0])))
    )
    joined.multiply_energy()
    energy = joined.predictions()[0].estimates["energy_j"]
    assert (energy.value, energy.low, energy.high) == (18.0, 6.0, 48.0)
