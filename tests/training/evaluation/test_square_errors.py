"""Root mean square errors: pooled, by part, summed over targets."""

import numpy as np
import pytest

from forerun.data.measurements import Measurements
from forerun.training.evaluation.evaluate import rows
from forerun.training.evaluation.predictions import TaskPredictions
from forerun.training.evaluation.square_errors import root_mean_squares, summed_rows
from forerun.training.protocols.protocol import Task

NOTHING = Measurements([], {})


def task_predictions(measured, error, metric="a", seed=0, scale=np.asarray):
    task = Task("protocol/part", metric, NOTHING, scale=scale)
    truth = np.array(measured, dtype=float)
    nothing = np.full(len(truth), np.nan)
    columns = {"measured": truth, "predicted": truth + error, "low": nothing, "high": nothing}
    return TaskPredictions(task, seed, columns, {"constant": truth + 2 * error}, "mine", 0)


def test_a_large_part_weighs_more_when_rows_are_pooled():
    parts = [task_predictions([1.0] * 9, 0.0), task_predictions([1.0], 1.0)]
    found = root_mean_squares(parts)
    assert found["rmse"] == pytest.approx(np.sqrt(0.1))
    assert found["rmse_part_mean"] == pytest.approx(0.5)
    assert found["baselines_rmse"] == {"constant": pytest.approx(2 * np.sqrt(0.1))}


def test_errors_are_taken_on_the_tasks_scale():
    (found,) = (root_mean_squares([task_predictions([100.0], 900.0, scale=np.log10)]),)
    assert found["rmse"] == pytest.approx(1.0)


def test_a_task_without_a_scale_has_no_such_fields():
    assert root_mean_squares([task_predictions([1.0], 1.0, scale=None)]) == {}
    (row,) = rows([task_predictions([1.0], 1.0, scale=None)])
    assert "rmse" not in row


def test_targets_add_up_and_seeds_are_averaged():
    predictions = [
        task_predictions([1.0, 2.0], error, metric, seed)
        for seed, more in ((0, 0.0), (1, 2.0))
        for metric, error in (("a", 1.0 + more), ("b", 3.0 + more))
    ]
    (total,) = summed_rows(predictions)
    assert total["rmse_sum"] == pytest.approx((4.0 + 8.0) / 2)
    assert total["rmse_sum_standard_error"] == pytest.approx(2.0)
    assert (total["metric"], total["n"]) == ("sum", 2)
    assert total["baselines_rmse_sum"]["constant"] == pytest.approx(12.0)


def test_one_target_alone_has_no_sum():
    assert summed_rows([task_predictions([1.0], 1.0)]) == []
