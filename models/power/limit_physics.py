"""Physics of a power limit: power follows the limit up to a job's demand, clocks follow power.

Dynamic power, above the static share, depends on the clock f (relative to the full one). Where
voltage falls with the clock, it is proportional to f^3; at the lowest voltage it is proportional to
f. The sum of both is `share = f (a + (1 - a) f^2)`. Time has a compute share, which scales as 1/f,
and a remainder that waits for memory and the host.
"""

import numpy as np

from forerun.data.columns import Column

SLOWEST: float = 0.05
"""Lowest clock relative to the full one; GPUs exceed the limit rather than go below it."""
NEWTON_STEPS = 14
HALVINGS = 40


def followed_power(ratio: Column, headroom: float | Column, onset: float) -> Column:
    """Average power over demand, shape (n,): at most 1, and nondecreasing in `ratio`.

    Args:
        ratio: (n,) limit over demand.
        headroom: average power over limit where the limit is low.
        onset: ratio above which the limit has no effect. It exceeds 1, because the demand is an
            average and its peaks exceed it. Between `2 / headroom - onset` and `onset` a parabola
            joins the two linear parts.
    """
    start = 2.0 / headroom - onset
    bend = headroom / (2.0 * np.maximum(onset - start, 1e-9))
    joined = 1.0 - bend * np.square(np.maximum(onset - ratio, 0.0))
    return np.where(ratio >= onset, 1.0, np.where(ratio <= start, headroom * ratio, joined))


def demand(power: Column, limit: Column, headroom: float, onset: float) -> Column:
    """Power without a limit, given the power under one; shape (n,).

    The inverse of `followed_power` by bisection. Where power is proportional to the limit, the
    demand is not unique, and the least one is returned.

    Args:
        power: (n,) average power under the limit.
        limit: (n,) limit, in the same unit.
        headroom: as in `followed_power`.
        onset: as in `followed_power`.
    """
    low = np.array(power, dtype=np.float64)
    high = np.maximum(limit / (2.0 / headroom - onset), low)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        more = middle * followed_power(limit / middle, headroom, onset) < power
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return high


def clock(share: Column, linear: float | Column) -> Column:
    """Clock relative to the full one for a given dynamic power, shape (n,).

    Args:
        share: (n,) dynamic power over that at full clock; clipped to 0.001 to 1.
        linear: share of dynamic power that is proportional to the clock, 0 to 1.
    """
    share = np.clip(share, 1e-3, 1.0)
    # Newton's method on a convex function, started above its root, converges monotonically.
    root: Column = np.minimum(np.cbrt(share / np.maximum(1.0 - linear, 1e-9)), 1.0)
    for _ in range(NEWTON_STEPS):
        gap = root * (linear + (1.0 - linear) * root**2) - share
        root = root - gap / (linear + 3.0 * (1.0 - linear) * root**2)
    return np.clip(root, SLOWEST, 1.0)


def stretched(clocks: Column, compute: float | Column) -> Column:
    """Time over that at full clock, shape (n,); the share `compute` scales with 1/clock."""
    ratio: Column = 1.0 + compute * (1.0 / clocks - 1.0)
    return ratio
