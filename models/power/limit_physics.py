"""What a power limit does to a GPU: power follows it up to a job's demand, clocks follow power.

Power above the static share buys clock. While voltage falls with the clock, dynamic power goes with
its cube; at the lowest voltage only in proportion. Both together: `share = f (a + (1 - a) f^2)`.
Time is part compute, which stretches as 1/f, and part what waits for memory and host.
"""

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]

SLOWEST: float = 0.05
"""Least clock in terms of the full one; below, GPUs leave the limit unheeded."""
NEWTON_STEPS = 14
HALVINGS = 40


def followed_power(ratio: Column, headroom: float | Column, onset: float) -> Column:
    """Average power in terms of the demand, shape (n,): never above 1, never falling in `ratio`.

    Args:
        ratio: limit over demand, n values.
        headroom: share of a low limit that is drawn.
        onset: ratio from which on the limit is not felt: more than 1, for an average hides peaks.
            Between there and `2 / headroom - onset` a parabola joins the two lines.
    """
    start = 2.0 / headroom - onset
    bend = headroom / (2.0 * np.maximum(onset - start, 1e-9))
    joined = 1.0 - bend * np.square(np.maximum(onset - ratio, 0.0))
    return np.where(ratio >= onset, 1.0, np.where(ratio <= start, headroom * ratio, joined))


def demand(power: Column, limit: Column, headroom: float, onset: float) -> Column:
    """What a job would draw without a limit, given what it draws at one; shape (n,).

    Where power follows the limit in proportion any higher demand would do; the least is taken.

    Args:
        power: average at the limit, n values.
        limit: n values, in the same unit.
        headroom: as in `followed_power`.
        onset: likewise.
    """
    low = np.array(power, dtype=np.float64)
    high = np.maximum(limit / (2.0 / headroom - onset), low)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        more = middle * followed_power(limit / middle, headroom, onset) < power
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return high


def clock(share: Column, linear: float | Column) -> Column:
    """Clock in terms of the full one that a share of dynamic power sustains, shape (n,).

    Args:
        share: of the dynamic power at full clock, n values; clipped to 0.001 to 1.
        linear: part of dynamic power that goes with the clock alone, 0 to 1.
    """
    share = np.clip(share, 1e-3, 1.0)
    # From above, Newton's method on a convex function comes down to its root without passing it.
    found: Column = np.minimum(np.cbrt(share / np.maximum(1.0 - linear, 1e-9)), 1.0)
    for _ in range(NEWTON_STEPS):
        gap = found * (linear + (1.0 - linear) * found**2) - share
        found = found - gap / (linear + 3.0 * (1.0 - linear) * found**2)
    return np.clip(found, SLOWEST, 1.0)


def stretched(clocks: Column, compute: float | Column) -> Column:
    """Time in terms of that at full clock, shape (n,); a part `compute` waits for the clock."""
    found: Column = 1.0 + compute * (1.0 / clocks - 1.0)
    return found
