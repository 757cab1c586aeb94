"""Scores of relative speeds P of co-located programs: absolute errors, and detection of slowdowns.

P is the time of a program when isolated over its time when co-located; below 1 it is slowed.
"""

from collections.abc import Mapping

import numpy as np

from forerun.data.shapes import Bool, Float64, Text
from forerun.models.colocation.slowed_class import SLOWED_BELOW

MOST = 1.2
"""P at which `mae_to_1.2` clips measured and predicted values: a program that gains from neighbours
needs no protection, and a few runs that wait for a disk gain twentyfold."""
SLOWED = (0.95, 0.9, 0.8)
"""Thresholds of P for the area under the ROC curve of slowed against other runs."""


def contention_scores(
    measured: Float64[np.ndarray, " n"],
    predicted: Float64[np.ndarray, " n"],
    repeats: Text[np.ndarray, " n"],
    baselines: Mapping[str, Float64[np.ndarray, " n"]],
    low: Float64[np.ndarray, " n"] | None = None,
) -> dict[str, float | None]:
    """Scores of predicted relative speeds, of baselines and of the measurement noise.

    Args:
        measured: P, shape (n,); NaN where it was not measured.
        predicted: predictions of P, shape (n,).
        repeats: keys, shape (n,); rows with the same key are repeats of one configuration.
        baselines: name -> predictions of P, shape (n,).
        low: lower ends of prediction intervals, shape (n,); NaN where the predictor reports a class
            instead of an interval; None where intervals are not scored.

    Returns:
        `mae`, `rmse` and `mae_to_1.2` (measured and predicted values clipped at 1.2);
        `auc_below_0.9` and further thresholds (None where all or no values are below);
        `mae_of_repeats`, the noise floor, which is the error of a prediction by the mean of all
        repeats (None without repeats), and `repeated_rows`, the number of rows it is computed from;
        `mae_NAME` of each baseline; for the class `slowed` the false positive rate `false_alarms`
        and the false negative rate `misses`, percent. With `low` also `share_with_interval`, and
        both rates over the rows without an interval (`false_alarms_of_class`, `misses_of_class`).
    """
    from sklearn.metrics import mean_absolute_error, root_mean_squared_error

    known = np.isfinite(measured) & np.isfinite(predicted)
    truth, answer = measured[known], predicted[known]
    if not len(truth):
        return {}
    scores: dict[str, float | None] = {
        "mae": float(mean_absolute_error(truth, answer)),
        "rmse": float(root_mean_squared_error(truth, answer)),
        "mae_to_1.2": _cut(truth, answer),
    }
    scores |= {f"auc_below_{level:g}": auc(truth < level, -answer) for level in SLOWED}
    scores["mae_of_repeats"] = noise(truth, repeats[known])
    scores["mae_of_repeats_to_1.2"] = noise(np.minimum(truth, MOST), repeats[known])
    scores["repeated_rows"] = float(repeated(repeats[known]).sum())
    scores["false_alarms"], scores["misses"] = class_errors(truth, answer)
    if low is not None:
        withheld = np.isnan(low[known])
        scores["share_with_interval"] = 100.0 * float((~withheld).mean())
        rates = class_errors(truth[withheld], answer[withheld])
        scores["false_alarms_of_class"], scores["misses_of_class"] = rates
    for name, column in baselines.items():
        scores[f"mae_{name}"] = float(np.abs(column[known] - truth).mean())
        scores[f"mae_{name}_to_1.2"] = _cut(truth, column[known])
    return scores


def auc(positive: Bool[np.ndarray, " n"], score: Float64[np.ndarray, " n"]) -> float | None:
    """Area under the ROC curve of `score` for the class `positive`; None unless both classes occur.

    It is the probability that a positive row has a higher score than a negative one, with ties
    counted half (the Mann-Whitney statistic).
    """
    from sklearn.metrics import roc_auc_score

    if len(np.unique(positive)) < 2:
        return None
    return float(roc_auc_score(positive, score))


def class_errors(
    measured: Float64[np.ndarray, " n"], predicted: Float64[np.ndarray, " n"]
) -> tuple[float | None, float | None]:
    """Error rates of the class `slowed`, a relative speed below `SLOWED_BELOW`, percent.

    Returns:
        False positive rate (among runs that were not slowed) and false negative rate (among slowed
        runs); None without such runs.
    """
    slowed, called = measured < SLOWED_BELOW, predicted < SLOWED_BELOW
    false_alarms = 100.0 * float(called[~slowed].mean()) if (~slowed).any() else None
    misses = 100.0 * float((~called[slowed]).mean()) if slowed.any() else None
    return false_alarms, misses


def repeated(repeats: Text[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
    """True for rows that share their key with another row, shape (n,)."""
    _, place, counts = np.unique(repeats, return_inverse=True, return_counts=True)
    again: Bool[np.ndarray, " n"] = counts[place] > 1
    return again


def noise(values: Float64[np.ndarray, " n"], repeats: Text[np.ndarray, " n"]) -> float | None:
    """Mean absolute deviation of repeated runs from their mean; None where no run was repeated.

    Rows without a repeat are ignored. Deviations from the mean of n repeats are multiplied by
    sqrt(n / (n - 1)), because they underestimate those from the true mean.

    Args:
        values: P, shape (n,).
        repeats: keys, shape (n,); rows with the same key are repeats of one configuration.
    """
    _, place, counts = np.unique(repeats, return_inverse=True, return_counts=True)
    middle = (np.bincount(place, weights=values) / counts)[place]
    again = repeated(repeats)
    if not again.any():
        return None
    count = counts[place][again]
    away = np.abs(values - middle)[again] * np.sqrt(count / (count - 1.0))
    return float(away.mean())


def _cut(one: Float64[np.ndarray, " n"], other: Float64[np.ndarray, " n"]) -> float:
    return float(np.abs(np.minimum(one, MOST) - np.minimum(other, MOST)).mean())
