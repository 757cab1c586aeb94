"""Common parts of training and serving plans: the Pareto front, and how certain the best option is.

Criteria are costs: less is better.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from forerun.data.columns import Column, Matrix

DRAWN: Final = 20
"""Number of best options compared in random draws."""
DRAWS: Final = 2000
SETTLED: Final = 0.9
"""Share of draws from which the winner counts as settled."""
MISSES: Final = 3
"""Number of named options that miss a limit."""
SAME: Final = 1e-9
"""Relative difference below which two costs count as equal."""


def powers_of_two(most: int) -> list[int]:
    """Powers of two up to a number."""
    return [1 << power for power in range(most.bit_length())]


def front(costs: Matrix) -> list[int]:
    """Positions of the Pareto-optimal options, sorted by the first criterion.

    Of options with equal costs the first is taken.

    Args:
        costs: (n, k) non-negative costs of n options by k criteria.
    """
    rest, found = np.lexsort(costs.T[::-1]), []
    while len(rest):
        first = rest[0]
        found.append(int(first))
        rest = rest[(costs[rest] < costs[first] * (1.0 - SAME)).any(axis=1)]
    return found


def wins_of(costs: Matrix) -> Column:
    """Share of draws in which each of n options is cheapest, (n,).

    Args:
        costs: (draws, n), or a monotone function of the costs.
    """
    draws, number = costs.shape
    return np.asarray(np.bincount(np.argmin(costs, axis=1), minlength=number) / draws)


def close_call(wins: Sequence[float]) -> int | None:
    """Position of the option that a measurement should compare with the first.

    None if the first wins in 90 % of draws or is the only one.
    """
    if len(wins) < 2 or wins[0] >= SETTLED:
        return None
    return 1 + int(np.argmax(wins[1:]))
