"""Root mean square errors on a task's own scale, pooled over its parts and as their mean.

A protocol of several parts (programs, folds) can be read in two ways: one error over all rows, or
the mean of each part's error. Both are given; which one a target is held against is the protocol's
to say. Targets of one task on scales of their own add up to one sum.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forerun.training.scores.errors import mean_and_standard_error

if TYPE_CHECKING:
    from forerun.training.evaluation.predictions import Answered

Column = NDArray[np.float64]
Scores = dict[str, Any]
SUM = "sum"
"""What stands for the metric in the row of a sum."""


def root_mean_squares(answered: Sequence["Answered"]) -> Scores:
    """Fields of one task's row; empty for a task without a scale.

    Args:
        answered: of one task, device, metric and predictor; all parts and seeds.

    Returns:
        `rmse` over all parts' rows and `rmse_part_mean`, means over seeds, with the standard error
        of the first; the same of baselines in `baselines_rmse` and `baselines_rmse_part_mean`.
    """
    if answered[0].task.scale is None:
        return {}
    seeds = _by_seed(answered)
    pooled, parts = zip(*(_errors(mine) for mine in seeds), strict=True)
    systems = [s for s in answered[0].baselines if all(s in a.baselines for a in answered)]
    others = {s: [_errors(mine, s) for mine in seeds] for s in systems}
    mean, error = mean_and_standard_error(pooled)
    return {
        "score": "rmse",
        "rmse": mean,
        "rmse_part_mean": mean_and_standard_error(parts)[0],
        "rmse_standard_error": error,
        "baselines_rmse": {s: _mean([one[0] for one in found]) for s, found in others.items()},
        "baselines_rmse_part_mean": {
            s: _mean([one[1] for one in found]) for s, found in others.items()
        },
    }


def summed_rows(answered: Sequence["Answered"]) -> list[Scores]:
    """One row a task and predictor that has several metrics with scales: the sum of their errors.

    Returns:
        Rows with `metric` `sum`, `rmse_sum`, `rmse_sum_part_mean` and those of baselines.
    """
    found: dict[tuple[str, str], dict[str, list[Answered]]] = {}
    for answer in answered:
        if answer.task.scale is not None:
            metrics = found.setdefault((answer.task.name, answer.predictor), {})
            metrics.setdefault(answer.task.metric, []).append(answer)
    return [
        _summed(name, predictor, list(metrics.values()))
        for (name, predictor), metrics in found.items()
        if len(metrics) > 1
    ]


def _summed(name: str, predictor: str, metrics: Sequence[Sequence["Answered"]]) -> Scores:
    rows = [root_mean_squares(mine) for mine in metrics]
    per_seed = [[_errors(mine)[0] for mine in _by_seed(one)] for one in metrics]
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


def _by_seed(answered: Sequence["Answered"]) -> list[list["Answered"]]:
    return [[a for a in answered if a.seed == seed] for seed in sorted({a.seed for a in answered})]


def _errors(parts: Sequence["Answered"], baseline: str | None = None) -> tuple[float, float]:
    """Over all rows, and the mean over parts."""
    missed = [_missed(part, baseline) for part in parts]
    pooled = float(np.sqrt(np.mean(np.concatenate(missed))))
    return pooled, float(np.mean([np.sqrt(one.mean()) for one in missed if len(one)]))


def _missed(part: "Answered", baseline: str | None) -> Column:
    scale = part.task.scale
    assert scale is not None
    predicted = part.columns["predicted"] if baseline is None else part.baselines[baseline]
    squares = (scale(predicted) - scale(part.columns["measured"])) ** 2
    return np.asarray(squares[np.isfinite(squares)])


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
