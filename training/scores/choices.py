"""How good a choice is when the alternative with the least predicted value is taken."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
FEWEST = 3
"""Alternatives from which on there is something to choose."""
WITHIN = 0.02


@dataclass(frozen=True)
class Alternatives:
    """Rows among which one is to be chosen.

    Attributes:
        groups: n labels; rows of one label are alternatives of each other.
        rivals: simple rule -> n values; it takes the alternative with the least.
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
    """Scores of choosing the least, over groups of at least three alternatives.

    Args:
        measured: n values.
        predicted: n values; not finite where the predictor gave no answer.
        alternatives: what may be chosen among.

    Returns:
        `choices`: groups judged; `chosen_within_2pct`: share of groups, in percent, whose choice
        measures at most 2 % more than the best; `chosen_excess`: mean of what a choice measures
        above the best, percent; `chosen_by_rule`: rule -> its share within 2 %.
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
    """What each group's choice measures above the best, as a share."""
    known = np.isfinite(measured) & np.isfinite(predicted)
    found = []
    for group in np.unique(groups[known]):
        mine = np.flatnonzero(known & (groups == group))
        if len(mine) >= FEWEST:
            chosen = mine[np.argmin(predicted[mine])]
            found.append(measured[chosen] / measured[mine].min() - 1.0)
    return np.array(found)


def _share(excess: Column) -> float:
    return 100.0 * float(np.mean(excess <= WITHIN * (1.0 + 1e-9)))
