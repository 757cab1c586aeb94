"""Times as columns: what becomes of missing values and intervals, and what is scaled."""

import numpy as np

from forerun.models.limit import Limit
from forerun.models.llm_serving.iteration_table import TimeColumns
from forerun.models.prediction import Estimate, Predictions

NOTE = Limit("a note", severity="note")
FOUND = Predictions(
    {"tpot_ms": np.array([10.0, 20.0]), "ttft_ms": np.array([100.0, np.nan])},
    {"tpot_ms": np.array([8.0, np.nan])},
    {"tpot_ms": np.array([300.0, np.nan])},
    0.9,
    [(NOTE,), (Limit("outside"),)],
)
TIMES = TimeColumns.of(FOUND, FOUND.values)


def test_predictions_have_what_is_known_however_wide_the_interval_is():
    first, second = (TIMES.prediction(row) for row in range(len(TIMES)))
    assert first.estimates == {
        "tpot_ms": Estimate(10.0, 8.0, 300.0, 0.9),
        "ttft_ms": Estimate(100.0),
    }
    assert first.limits == (NOTE,)
    assert first.in_domain
    assert second.estimates == {"tpot_ms": Estimate(20.0)}
    assert not second.in_domain


def test_intervals_are_scaled_with_their_values_and_other_metrics_stay():
    scaled = TIMES.scaled({"tpot_ms": np.array([2.0, 3.0])})
    assert scaled.prediction(0).estimates["tpot_ms"] == Estimate(20.0, 16.0, 600.0, 0.9)
    assert scaled.prediction(1).estimates["tpot_ms"] == Estimate(60.0)
    assert scaled.prediction(0).estimates["ttft_ms"] == Estimate(100.0)


def test_columns_of_predictions_give_the_same_predictions():
    found = TIMES.predictions()
    assert TimeColumns.of_predictions(found[::-1]).predictions() == found[::-1]
    assert TimeColumns.of_predictions([]).predictions() == []
