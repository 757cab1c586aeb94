"""How good predictions of P are: errors on its own scale, and slowed runs told from others."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from forerun.models.colocation.slowed_class import SLOWED_BELOW

Column = NDArray[np.float64]
MOST = 1.2
"""P above which `mae_to_1.2` makes no difference: what gains from neighbours needs no protection,
and a few runs that wait for a disk gain twentyfold."""
SLOWED = (0.95, 0.9, 0.8)


def contention_scores(
    measured: Column,
    predicted: Column,
    repeats: NDArray[np.str_],
    baselines: Mapping[str, Column],
    low: Column | None = None,
) -> dict[str, float | None]:
    """Scores of n answers beside those of baselines and of the repeat noise.

    Args:
        measured: n values of P; NaN where it was not measured.
        predicted: n answers.
        repeats: n keys; rows of one key are repeats of one another.
        baselines: name -> n answers.
        low: n lower ends of intervals; NaN where a class is given in place of the interval, None
            where nothing is known of intervals.

    Returns:
        `mae`, `rmse`, `mae_to_1.2` (both sides cut at 1.2), `auc_below_0.9` and further levels
        (None where all or none are below), `mae_of_repeats` (what an answer would miss that knew
        the mean of a run's repeats: the noise floor; None without repeats), `repeated_rows` (on how
        many rows that rests), `mae_NAME` of each baseline, and for the class `slowed` the shares
        `false_alarms` of the runs that were not slowed and `misses` of those that were; with `low`
        also `share_with_interval`, and both shares over the rows without an interval
        (`false_alarms_of_class`, `misses_of_class`).
    """
    known = np.isfinite(measured) & np.isfinite(predicted)
    truth, answer = measured[known], predicted[known]
    if not len(truth):
        return {}
    errors = answer - truth
    found: dict[str, float | None] = {
        "mae": float(np.abs(errors).mean()),
        "rmse": float(np.sqrt((errors**2).mean())),
        "mae_to_1.2": _cut(truth, answer),
    }
    found |= {f"auc_below_{level:g}": auc(truth < level, -answer) for level in SLOWED}
    found["mae_of_repeats"] = noise(truth, repeats[known])
    found["mae_of_repeats_to_1.2"] = noise(np.minimum(truth, MOST), repeats[known])
    found["repeated_rows"] = float(repeated(repeats[known]).sum())
    found["false_alarms"], found["misses"] = class_errors(truth, answer)
    if low is not None:
        withheld = np.isnan(low[known])
        found["share_with_interval"] = 100.0 * float((~withheld).mean())
        rates = class_errors(truth[withheld], answer[withheld])
        found["false_alarms_of_class"], found["misses_of_class"] = rates
    for name, column in baselines.items():
        found[f"mae_{name}"] = float(np.abs(column[known] - truth).mean())
        found[f"mae_{name}_to_1.2"] = _cut(truth, column[known])
    return found


def auc(positive: NDArray[np.bool_], score: Column) -> float | None:
    """Chance that a positive row scores above a negative one, ties half; None without both."""
    count = int(positive.sum())
    if not 0 < count < len(positive):
        return None
    _, place, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2.0)[place]
    above = ranks[positive].sum() - count * (count + 1) / 2.0
    return float(above / (count * (len(positive) - count)))


def class_errors(measured: Column, predicted: Column) -> tuple[float | None, float | None]:
    """How often the class `slowed`, a relative speed below SLOWED_BELOW, is wrong, percent.

    Returns:
        Share of the runs that were not slowed which are called slowed, and of the slowed runs which
        are not; None without such runs.
    """
    slowed, called = measured < SLOWED_BELOW, predicted < SLOWED_BELOW
    false_alarms = 100.0 * float(called[~slowed].mean()) if (~slowed).any() else None
    misses = 100.0 * float((~called[slowed]).mean()) if slowed.any() else None
    return false_alarms, misses


def repeated(repeats: NDArray[np.str_]) -> NDArray[np.bool_]:
    """Which of n rows share their key with another, shape (n,)."""
    _, place, counts = np.unique(repeats, return_inverse=True, return_counts=True)
    again: NDArray[np.bool_] = counts[place] > 1
    return again


def noise(values: Column, repeats: NDArray[np.str_]) -> float | None:
    """Mean distance of repeats to their true mean; None where no run was repeated.

    Runs that were not repeated tell nothing about it. The mean of n repeats lies nearer to them
    than the true one does, by the root of (n - 1) / n, which is made good.

    Args:
        values: n values of P.
        repeats: n keys; rows of one key are repeats of one another.
    """
    _, place, counts = np.unique(repeats, return_inverse=True, return_counts=True)
    middle = (np.bincount(place, weights=values) / counts)[place]
    again = repeated(repeats)
    if not again.any():
        return None
    count = counts[place][again]
    away = np.abs(values - middle)[again] * np.sqrt(count / (count - 1.0))
    return float(away.mean())


def _cut(one: Column, other: Column) -> float:
    return float(np.abs(np.minimum(one, MOST) - np.minimum(other, MOST)).mean())
