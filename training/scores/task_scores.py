"""Extra scores of some tasks: capacities, choices between alternatives, and relative speeds.

They are computed for each seed, over all folds where possible, and averaged. A choice is the
alternative with the smallest predicted value. The relative speed P of a co-located program is its
time in isolation over its time with neighbours (below 1, it is slowed down); it is scored by
absolute errors and by how well slowdowns are detected.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

import numpy as np

from forerun.data.columns import Columns, rows_by
from forerun.data.shapes import Float64, Text
from forerun.models.colocation.slowed_class import SLOWED_BELOW
from forerun.training.scores.errors import Column, Mask, mean, share_of

Named = Mapping[str, Column]
Names = Text[np.ndarray, " n"]


@dataclass(frozen=True)
class TaskScore(Columns, ABC):
    """An extra score of a task, with the data it needs about the n held-out rows."""

    pooled: ClassVar[bool] = True
    """Whether the rows of all folds are scored together; otherwise fold scores are averaged."""
    ranks: ClassVar[str] = ""
    """Field that ranks the task; empty for the default score."""

    def __add__(self, other: Self) -> Self:
        """The score over the rows of both."""
        return self

    @abstractmethod
    def of(self, columns: Named, baselines: Named) -> dict[str, Any]:
        """Fields of the task's row.

        Args:
            columns: `measured`, `predicted`, and the ends `low` and `high` of 90 % intervals, shape
                (n,) each; NaN where there is none.
            baselines: name -> predictions, shape (n,).
        """


@dataclass(frozen=True)
class Capacity(TaskScore):
    """Predictions of a capacity that must suffice, such as memory.

    Fields, in percent: `bin_accuracy`, the share of predictions in the bin of the measured value;
    `under_predicted`, the share of predictions below the measured value; `below_high`, the share of
    measured values up to `high` (nominally 95 %); `over_allocation`, the mean of
    high / measured - 1.

    Attributes:
        bin_width: width of the bins in the metric's unit; the first begins at zero.
    """

    bin_width: float

    def of(self, columns: Named, baselines: Named) -> dict[str, Any]:
        """The scores over the rows with a measured value and a prediction."""
        truth, answer, high = (columns[name] for name in ("measured", "predicted", "high"))
        known = np.isfinite(truth) & np.isfinite(answer)
        truth, answer, high = truth[known], answer[known], high[known]
        bounded = np.isfinite(high)
        return {
            "bin_accuracy": share_of(truth // self.bin_width == answer // self.bin_width),
            "under_predicted": share_of(answer < truth),
            "below_high": share_of(truth[bounded] <= high[bounded]),
            "over_allocation": mean(100.0 * (high[bounded] / truth[bounded] - 1.0)),
        }


FEWEST: Final = 3
"""Fewest alternatives of a group that is scored."""
WITHIN: Final = 0.02
"""Largest relative excess over the best alternative with which a choice counts as good."""


@dataclass(frozen=True)
class Choices(TaskScore):
    """Choices of the smallest predicted value in each group of at least `FEWEST` alternatives.

    Fields: `choices`: number of groups; `chosen_within_2pct`: percentage of groups in which the
    measured value of the choice exceeds the best by at most 2 %; `chosen_excess`: mean relative
    excess over the best, percent; `chosen_by_rule`: rule -> its `chosen_within_2pct`.

    Attributes:
        groups: shape (n,); rows with the same label are alternatives.
        rivals: name of a simple rule -> shape (n,); the rule chooses the smallest value.
    """

    groups: Names
    rivals: Mapping[str, Column] = field(default_factory=dict)
    pooled = False

    def of(self, columns: Named, baselines: Named) -> dict[str, Any]:
        """Scores of the choices by predicted values, and of those by the rules."""
        measured = columns["measured"]
        excess = self._excess(measured, columns["predicted"])
        if not len(excess):
            nothing = dict.fromkeys(("chosen_within_2pct", "chosen_excess"))
            return {"choices": 0, **nothing, "chosen_by_rule": {}}
        return {
            "choices": len(excess),
            "chosen_within_2pct": _good(excess),
            "chosen_excess": 100.0 * float(excess.mean()),
            "chosen_by_rule": {
                name: _good(self._excess(measured, column)) for name, column in self.rivals.items()
            },
        }

    def _excess(self, measured: Column, predicted: Column) -> Float64[np.ndarray, " groups"]:
        """Relative excess of each group's choice over its best alternative, shape (groups,)."""
        known = np.isfinite(measured) & np.isfinite(predicted)
        excess = []
        for rows in rows_by(self.groups[known].tolist()).values():
            if len(rows) >= FEWEST:
                measured_here = measured[known][rows]
                excess.append(
                    measured_here[np.argmin(predicted[known][rows])] / measured_here.min() - 1.0
                )
        return np.array(excess)


def _good(excess: Float64[np.ndarray, " groups"]) -> float:
    return 100.0 * float(np.mean(excess <= WITHIN * (1.0 + 1e-9)))


MOST: Final = 1.2
"""P at which `mae_to_1.2` clips measured and predicted values. A program that gains from neighbours
needs no protection, and a few runs that wait for a disk gain twentyfold."""
SLOWED: Final = (0.95, 0.9, 0.8)
"""Thresholds of P for the area under the ROC curve of slowed runs against all others."""


@dataclass(frozen=True)
class RelativeSpeed(TaskScore):
    """Relative speeds, which are shares: their errors are absolute.

    Fields: `mae`, `rmse` and `mae_to_1.2` (measured and predicted values clipped at 1.2);
    `auc_below_0.9` and the same for other thresholds (None if all or no values are below);
    `mae_of_repeats`, the noise floor: the error of predicting each run by the mean of its repeats
    (None without repeats), and `repeated_rows`, the number of rows it is computed from;
    `mae_NAME` for each baseline; for the class `slowed` the false positive rate `false_alarms` and
    the false negative rate `misses`, percent; `share_with_interval`; and both rates over the rows
    without an interval, for which the predictor reports only a class (`false_alarms_of_class`,
    `misses_of_class`).

    Attributes:
        repeats: keys, shape (n,); rows with the same key are repeats of one configuration.
    """

    repeats: Names
    ranks = "mae"

    def __add__(self, other: "RelativeSpeed") -> "RelativeSpeed":
        """The score over the rows of both."""
        return self.concatenate([self, other])

    def of(self, columns: Named, baselines: Named) -> dict[str, Any]:
        """Scores over the rows with a measured value and a prediction; empty without such rows."""
        from sklearn.metrics import mean_absolute_error, root_mean_squared_error

        known = np.isfinite(columns["measured"]) & np.isfinite(columns["predicted"])
        truth, answer = columns["measured"][known], columns["predicted"][known]
        if not len(truth):
            return {}
        scores: dict[str, float | None] = {
            "mae": float(mean_absolute_error(truth, answer)),
            "rmse": float(root_mean_squared_error(truth, answer)),
            "mae_to_1.2": _cut(truth, answer),
        }
        scores |= {f"auc_below_{level:g}": auc(truth < level, -answer) for level in SLOWED}
        repeats = self.repeats[known]
        scores["mae_of_repeats"] = noise(truth, repeats)
        scores["mae_of_repeats_to_1.2"] = noise(np.minimum(truth, MOST), repeats)
        scores["repeated_rows"] = float(repeated(repeats).sum())
        scores["false_alarms"], scores["misses"] = class_errors(truth, answer)
        withheld = np.isnan(columns["low"][known])
        scores["share_with_interval"] = 100.0 * float((~withheld).mean())
        rates = class_errors(truth[withheld], answer[withheld])
        scores["false_alarms_of_class"], scores["misses_of_class"] = rates
        for name, column in baselines.items():
            scores[f"mae_{name}"] = float(np.abs(column[known] - truth).mean())
            scores[f"mae_{name}_to_1.2"] = _cut(truth, column[known])
        return scores


def auc(positive: Mask, score: Column) -> float | None:
    """Area under the ROC curve of `score` for the class `positive`; None unless both classes occur.

    This is the probability that a positive row has a higher score than a negative one, where ties
    count half (the Mann-Whitney statistic).
    """
    from sklearn.metrics import roc_auc_score

    if len(np.unique(positive)) < 2:
        return None
    return float(roc_auc_score(positive, score))


def class_errors(measured: Column, predicted: Column) -> tuple[float | None, float | None]:
    """Error rates of the class `slowed`, a relative speed below `SLOWED_BELOW`, percent.

    Returns:
        False positive rate (among runs that were not slowed) and false negative rate (among slowed
        runs); None without such runs.
    """
    slowed, called = measured < SLOWED_BELOW, predicted < SLOWED_BELOW
    false_alarms = 100.0 * float(called[~slowed].mean()) if (~slowed).any() else None
    misses = 100.0 * float((~called[slowed]).mean()) if slowed.any() else None
    return false_alarms, misses


def repeated(repeats: Names) -> Mask:
    """True for rows that share their key with another row, shape (n,)."""
    _, place, counts = np.unique(repeats, return_inverse=True, return_counts=True)
    return np.asarray(counts[place] > 1)


def noise(values: Column, repeats: Names) -> float | None:
    """Mean absolute deviation of repeated runs from their mean; None if no run was repeated.

    Rows without a repeat are ignored. Deviations from the mean of n repeats underestimate those
    from the true mean, so they are multiplied by sqrt(n / (n - 1)).

    Args:
        values: P, shape (n,).
        repeats: keys, shape (n,); rows with the same key are repeats of one configuration.
    """
    again = repeated(repeats)
    if not again.any():
        return None
    _, place, counts = np.unique(repeats, return_inverse=True, return_counts=True)
    middle, count = (np.bincount(place, weights=values) / counts)[place], counts[place][again]
    away = np.abs(values - middle)[again] * np.sqrt(count / (count - 1.0))
    return float(away.mean())


def _cut(measured: Column, predicted: Column) -> float:
    return float(np.abs(np.minimum(measured, MOST) - np.minimum(predicted, MOST)).mean())
