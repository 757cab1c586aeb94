"""What plans of training and of serving share: which options no other beats, and how sure that is.

Criteria are costs: less is better.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from forerun.data.columns import Column, Matrix

DRAWN: Final = 20
"""Best options among which it is drawn how often each wins."""
DRAWS: Final = 2000
SETTLED: Final = 0.9
"""Share of draws from which on the winner is settled."""
MISSES: Final = 3
"""Options that miss a limit and are named."""
SAME: Final = 1e-9
"""Relative difference below which two costs are one."""


def powers_of_two(most: int) -> list[int]:
    """Those up to a number."""
    return [1 << power for power in range(most.bit_length())]


def front(costs: Matrix) -> list[int]:
    """Positions of the options that no other beats in every criterion, by the first criterion.

    Of options with the same costs the first is taken.

    Args:
        costs: (n, k) of n options by k criteria, none negative.
    """
    rest, found = np.lexsort(costs.T[::-1]), []
    while len(rest):
        first = rest[0]
        found.append(int(first))
        rest = rest[(costs[rest] < costs[first] * (1.0 - SAME)).any(axis=1)]
    return found


def wins_of(costs: Matrix) -> Column:
    """Share of draws in which each of n options costs least, (n,).

    Args:
        costs: (draws, n), or anything that rises with them.
    """
    draws, number = costs.shape
    return np.asarray(np.bincount(np.argmin(costs, axis=1), minlength=number) / draws)


def close_call(wins: Sequence[float]) -> int | None:
    """Position of the option that a measurement should compare with the first.

    None where the first wins in 90 % of draws, or has no other.
    """
    if len(wins) < 2 or wins[0] >= SETTLED:
        return None
    return 1 + int(np.argmax(wins[1:]))
