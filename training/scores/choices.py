"""Scores of the choice that a predictor makes: the alternative with the least predicted value."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
FEWEST = 3
"""Fewest alternatives of a group that is scored."""
WITHIN = 0.02
"""Relative excess over the best alternative up to which a choice counts as good."""


@dataclass(frozen=True)
class Alternatives:
    """Groups of rows, from each of which one row is to be chosen.

    Attributes:
        groups: shape (n,); rows with the same label are alternatives to each other.
        rivals: name of a simple rule -> shape (n,); the rule chooses the row with the least value.
    """

    groups: NDArray[np.str_]
    rivals: Mapping[str, Column] = field(default_factory=dict)

    def take(self, rows: NDArray[np.bool_]) -> "Alternatives":
        """The rows where the mask is True."""
        rivals = {name: column[rows] for name, column in self.rivals.items()}
        return Alternatives(self.groups[rows], rivals)


def choice_scores(
    measured: Column, predicted: Column, alternatives: Alternatives
) -> dict[str, float | int | dict[str, float] | None]:
    """Scores of choosing the least predicted value, over groups of at least `FEWEST` alternatives.

    Args:
        measured: shape (n,).
        predicted: shape (n,); not finite where there is no prediction.
        alternatives: groups of the n rows, and rules to compare with.

    Returns:
        `choices`: number of groups; `chosen_within_2pct`: percent of the groups in which the
        measured value of the choice exceeds that of the best by at most 2 %; `chosen_excess`: mean
        relative excess over the best, percent; `chosen_by_rule`: rule -> its `chosen_within_2pct`.
    """
    excess = _excess(measured, predicted, alternatives.groups)
    rules = {
        name: _share(_excess(measured, column, alternatives.groups))
        for name, column in alternatives.rivals.items()
    }
    return {
        "choices": len(excess),
        "chosen_within_2pct": _share(excess) if len(excess) else None,
        "chosen_excess": 100.0 * float(excess.mean()) if len(excess) else None,
        "chosen_by_rule": rules if len(excess) else {},
    }


def _excess(measured: Column, predicted: Column, groups: NDArray[np.str_]) -> Column:
    """Relative excess of each group's choice over its best alternative, shape (groups,)."""
    known = np.isfinite(measured) & np.isfinite(predicted)
    excess = []
    for group in np.unique(groups[known]):
        rows = np.flatnonzero(known & (groups == group))
        if len(rows) >= FEWEST:
            chosen = rows[np.argmin(predicted[rows])]
            excess.append(measured[chosen] / measured[rows].min() - 1.0)
    return np.array(excess)


def _share(excess: Column) -> float:
    return 100.0 * float(np.mean(excess <= WITHIN * (1.0 + 1e-9)))
