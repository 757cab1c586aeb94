"""Scores of the choice that a predictor makes: the alternative with the least predicted value."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from forerun.data.shapes import Bool, Float64, Text

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

    groups: Text[np.ndarray, " n"]
    rivals: Mapping[str, Float64[np.ndarray, " n"]] = field(default_factory=dict)

    def take(self, rows: Bool[np.ndarray, " n"]) -> "Alternatives":
        """The rows where the mask is True."""
        rivals = {name: column[rows] for name, column in self.rivals.items()}
        return Alternatives(self.groups[rows], rivals)


def choice_scores(
    measured: Float64[np.ndarray, " n"],
    predicted: Float64[np.ndarray, " n"],
    alternatives: Alternatives,
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


def _excess(
    measured: Float64[np.ndarray, " n"],
    predicted: Float64[np.ndarray, " n"],
    groups: Text[np.ndarray, " n"],
) -> Float64[np.ndarray, " groups"]:
    """Relative excess of each group's choice over its best alternative, shape (groups,)."""
    known = np.isfinite(measured) & np.isfinite(predicted)
    excess = []
    for group in np.unique(groups[known]):
        rows = np.flatnonzero(known & (groups == group))
        if len(rows) >= FEWEST:
            chosen = rows[np.argmin(predicted[rows])]
            excess.append(measured[chosen] / measured[rows].min() - 1.0)
    return np.array(excess)


def _share(excess: Float64[np.ndarray, " groups"]) -> float:
    return 100.0 * float(np.mean(excess <= WITHIN * (1.0 + 1e-9)))
