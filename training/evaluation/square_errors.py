"""Root mean square errors on a task's own scale, pooled over all rows and averaged over parts.

A protocol of several parts (programs, folds) has one error over all rows and another that is the
mean over parts; both are reported. If a task has several metrics, each on its own scale, the sum of
their errors is reported as well.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from forerun.data.columns import Column
from forerun.training.evaluation.predictions import TaskPredictions, grouped
from forerun.training.scores.errors import mean_and_standard_error

Scores = dict[str, Any]
SUM = "sum"
"""Value of the field `metric` in a row of summed errors."""


def root_mean_squares(predictions: Sequence[TaskPredictions]) -> Scores:
    """Fields for a task's row with its root mean square errors; empty if the task has no scale.

    Args:
        predictions: all parts and seeds of one task, device, metric and predictor.

    Returns:
        `rmse` over the rows of all parts and `rmse_part_mean`, both averaged over seeds, and
        `rmse_standard_error`; for baselines `baselines_rmse` and `baselines_rmse_part_mean`.
    """
    if predictions[0].task.scale is None:
        return {}
    seeds = _by_seed(predictions)
    pooled, parts = zip(*(_errors(same_seed) for same_seed in seeds), strict=True)
    systems = [s for s in predictions[0].baselines if all(s in a.baselines for a in predictions)]
    baselines = {
        s: np.mean([_errors(seed_predictions, s) for seed_predictions in seeds], axis=0).tolist()
        for s in systems
    }
    mean, error = mean_and_standard_error(pooled)
    return {
        "score": "rmse",
        "rmse": mean,
        "rmse_part_mean": mean_and_standard_error(parts)[0],
        "rmse_standard_error": error,
        "baselines_rmse": {s: whole for s, (whole, _) in baselines.items()},
        "baselines_rmse_part_mean": {s: part_mean for s, (_, part_mean) in baselines.items()},
    }


def summed_rows(predictions: Sequence[TaskPredictions]) -> list[Scores]:
    """Summed errors of each task and predictor with several metrics that have a scale.

    Returns:
        Rows whose `metric` is `sum`, with `rmse_sum`, `rmse_sum_part_mean` and the same fields of
        baselines.
    """
    scaled = [answer for answer in predictions if answer.task.scale is not None]
    found = []
    for key, of_task in grouped(
        scaled, lambda answer: (answer.task.name, answer.predictor)
    ).items():
        metrics = list(grouped(of_task, lambda answer: answer.task.metric).values())
        if len(metrics) > 1:
            found.append(_summed(*key, metrics))
    return found


def _summed(name: str, predictor: str, metrics: Sequence[Sequence[TaskPredictions]]) -> Scores:
    rows = [root_mean_squares(of_metric) for of_metric in metrics]
    per_seed = [
        [_errors(same_seed)[0] for same_seed in _by_seed(of_metric)] for of_metric in metrics
    ]
    sums = [float(sum(seed)) for seed in zip(*per_seed, strict=True)]
    first = _by_seed(metrics[0])[0]
    return {
        "task": name,
        "device": None,
        "metric": SUM,
        "predictor": predictor,
        "score": "rmse_sum",
        "n": sum(len(answer.columns["measured"]) for answer in first),
        "rmse_sum": float(np.mean(sums)),
        "rmse_sum_part_mean": sum(row["rmse_part_mean"] for row in rows),
        "rmse_sum_standard_error": mean_and_standard_error(sums)[1],
        "baselines_rmse_sum": _total([row["baselines_rmse"] for row in rows]),
        "baselines_rmse_sum_part_mean": _total([row["baselines_rmse_part_mean"] for row in rows]),
    }


def _total(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {s: sum(part[s] for part in parts) for s in parts[0] if all(s in p for p in parts)}


def _by_seed(predictions: Sequence[TaskPredictions]) -> list[list[TaskPredictions]]:
    return [
        same_seed
        for _, same_seed in sorted(grouped(predictions, lambda prediction: prediction.seed).items())
    ]


def _errors(parts: Sequence[TaskPredictions], baseline: str | None = None) -> tuple[float, float]:
    """Root mean square error over all rows, and the mean of the parts' errors."""
    squared_errors = [_squared_errors(part, baseline) for part in parts]
    pooled = float(np.sqrt(np.mean(np.concatenate(squared_errors))))
    return pooled, float(np.mean([np.sqrt(part.mean()) for part in squared_errors if len(part)]))


def _squared_errors(part: TaskPredictions, baseline: str | None) -> Column:
    scale = part.task.scale
    assert scale is not None
    predicted = part.columns["predicted"] if baseline is None else part.baselines[baseline]
    squares = (scale(predicted) - scale(part.columns["measured"])) ** 2
    return np.asarray(squares[np.isfinite(squares)])
