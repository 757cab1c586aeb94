"""Detect level changes in a sequence of log(measured / answered) while they happen.

A two-sided CUSUM (Page 1954) sums the sequential ranks of the values, minus an allowance. Each
value is ranked among earlier values of its own workload. The sum is divided by the factor by which
autocorrelation inflates such sums. Neither the level nor the scale of the noise has to be known,
and a workload whose answers are always wrong by the same factor contributes nothing.
"""

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from forerun.data.columns import groups_of
from forerun.data.shapes import Float64, Int

Values = Float64[np.ndarray, " n"]
Groups = Int[np.ndarray, " n"]


def sequential_ranks(values: Values, groups: Groups) -> Values:
    """The standardised sequential rank of each value.

    As long as the values of a group are exchangeable, sequential ranks are independent, and their
    distribution is known whatever the distribution of the values is (Barndorff-Nielsen 1963;
    McDonald 1990, "A cusum procedure based on sequential ranks", Naval Research Logistics 37).
    They do not depend on the level, scale and tails of a group, so that groups of different levels
    and scales can be pooled.

    Args:
        values: n values in temporal order.
        groups: the group of each value.

    Returns:
        Shape (n,): mean 0 and variance 1 for exchangeable values without ties, between -sqrt(3) and
        sqrt(3); 0 for the first value of a group, which has no predecessor. Ties get their mean
        rank.
    """
    ranks = np.zeros(len(values))
    earlier: dict[int, list[float]] = {}
    for index, (value, group) in enumerate(zip(values.tolist(), groups.tolist(), strict=True)):
        sorted_before = earlier.setdefault(group, [])
        count = len(sorted_before)
        if count:
            below = (bisect_left(sorted_before, value) + bisect_right(sorted_before, value)) / 2
            ranks[index] = (below - count / 2) / np.sqrt(count * (count + 2) / 12)
        insort(sorted_before, value)
    return ranks


def autocorrelation_scales(ranks: Values) -> Values:
    """The factor by which autocorrelation inflates the standard deviation of a sum of ranks.

    For a first-order autoregressive process this is sqrt((1 + r) / (1 - r)). The coefficient r is
    estimated at each point in time from the ranks before it, shrunk towards 0 with a weight of
    `PRIOR_ROWS` ranks, and clipped to the range from 0 to `LARGEST_CORRELATION`.

    Args:
        ranks: n standardised ranks in temporal order.

    Returns:
        Shape (n,), at least 1.
    """
    products = np.cumsum(ranks[1:] * ranks[:-1])
    squares = np.cumsum(ranks[1:] ** 2)
    known = np.clip(products / (squares + PRIOR_ROWS), 0.0, LARGEST_CORRELATION)
    correlation = np.concatenate([np.zeros(2), known[:-1]])[: len(ranks)]
    return np.asarray(np.sqrt((1.0 + correlation) / (1.0 - correlation)))


PRIOR_ROWS = 50
LARGEST_CORRELATION = 0.8


ALLOWANCE: Final = 0.25
"""Drift of the mean rank, in standard deviations, that the CUSUM tolerates."""
THRESHOLD: Final = 30.0
"""CUSUM level that raises an alarm. Stationary sequences of 10,000 values exceed it in well under
1 % of cases, whatever their distribution, even with a first-order autocorrelation of 0.6."""
LEAST_SHIFT: Final = 0.05
"""Smallest reported change, as a logarithm: 5 %. Smaller lasting changes are harmless."""
RECHECKED: Final = 25
"""Rows after which a change that was too small is estimated again, while the CUSUM stays high."""
_NORMAL: Final = 1.4826
_NINETY: Final = 1.6449


@dataclass(frozen=True, slots=True)
class Change:
    """A lasting change of level.

    Attributes:
        start: estimated position of the first row after the change.
        noticed: position of the row at which the change was detected.
        shift: change of log(measured / answered): median over the rows after the change of their
            distance from the earlier median of the same workload.
        low, high: approximate 90 % confidence interval of `shift`.
    """

    start: int
    noticed: int
    shift: float
    low: float
    high: float


def changes(log_ratios: Values, workloads: Groups) -> tuple[Change, ...]:
    """All changes of level, oldest first; after each change, the reference level starts anew.

    Args:
        log_ratios: n values of log(measured / answered) in temporal order.
        workloads: the workload of each value; only values of the same workload are compared.
    """
    found: list[tuple[int, int]] = []
    begin = 0
    while (change := _first_change(log_ratios[begin:], workloads[begin:])) is not None:
        found.append((begin + change[0], begin + change[1]))
        begin = found[-1][0]
    # The reference of a change goes back to the change before it, and its effect ends at the next.
    bounds = [0, *(start for start, _ in found), len(log_ratios)]
    return tuple(
        Change(start, noticed, *shift_at(log_ratios, workloads, start, bounds[n], bounds[n + 2]))
        for n, (start, noticed) in enumerate(found)
    )


def _first_change(log_ratios: Values, workloads: Groups) -> tuple[int, int] | None:
    """Start and detection of the first change; None if there is none."""
    ranks = sequential_ranks(log_ratios, workloads)
    ranks = ranks / autocorrelation_scales(ranks)
    candidates = []
    for sign in (1.0, -1.0):
        heights = _cusum(sign * ranks)
        noticed = _large_enough(log_ratios, workloads, heights)
        if noticed is not None:
            candidates.append((noticed, _start(heights, noticed)))
    if not candidates:
        return None
    noticed, start = min(candidates)
    return _split(log_ratios, workloads, start, noticed), noticed


def _cusum(ranks: Values) -> Values:
    """The one-sided CUSUM after each rank: its rise above its lowest point so far."""
    sums = np.cumsum(ranks - ALLOWANCE)
    return np.asarray(sums - np.minimum(np.minimum.accumulate(sums), 0.0))


def _start(heights: Values, noticed: int) -> int:
    """Position after the last minimum of the CUSUM before `noticed`."""
    return int(np.flatnonzero(heights[:noticed] <= 0.0)[-1]) + 1


def _large_enough(log_ratios: Values, workloads: Groups, heights: Values) -> int | None:
    """The first position at which the CUSUM is high and the change is large enough to matter."""
    high = np.flatnonzero(heights > THRESHOLD)
    checked = -RECHECKED
    for position in high.tolist():
        if position - checked < RECHECKED:
            continue
        checked = position
        start = _start(heights, position)
        shift, *_ = shift_at(log_ratios, workloads, start, end=position + 1)
        if abs(shift) >= LEAST_SHIFT:
            return int(position)
    return None


def _split(log_ratios: Values, workloads: Groups, start: int, noticed: int) -> int:
    """The row from `start` on that best separates the levels before and after the change.

    The CUSUM begins to rise a little early; the split minimises the sum of absolute deviations from
    both levels.
    """
    shift, *_ = shift_at(log_ratios, workloads, start, end=noticed + 1)
    levels = _levels(log_ratios[:start], workloads[:start])
    rows = [row for row in range(start, noticed + 1) if int(workloads[row]) in levels]
    distances = log_ratios[rows] - np.array([levels[int(workloads[row])] for row in rows])
    gains = np.abs(distances) - np.abs(distances - shift)
    after = np.cumsum(gains[::-1])[::-1]
    return rows[int(np.argmax(after))]


def shift_at(
    log_ratios: Values,
    workloads: Groups,
    start: int,
    begin: int = 0,
    end: int | None = None,
) -> tuple[float, float, float]:
    """The size of a change between the rows [begin, start) and [start, end).

    Args:
        log_ratios: values of log(measured / answered), shape (n,).
        workloads: the workload of each value.
        start: first row after the change.
        begin: first row of the reference.
        end: the row after the last one; n when None.

    Returns:
        The shift and its approximate 90 % confidence interval; three zeros if no workload has rows
        on both sides.
    """
    before, reference = log_ratios[begin:start], workloads[begin:start]
    levels = _levels(before, reference)
    rows = [row for row in range(start, end or len(log_ratios)) if int(workloads[row]) in levels]
    if not rows:
        return 0.0, 0.0, 0.0
    workloads_after = workloads[rows].tolist()
    distances = log_ratios[rows] - np.array([levels[workload] for workload in workloads_after])
    shift = float(np.median(distances))
    noise_after = _scale(distances - shift)
    noise_before = _scale(before - np.array([levels[workload] for workload in reference.tolist()]))
    shares, counts = Counter(workloads_after), Counter(reference.tolist())
    weight = sum((n / len(rows)) ** 2 / counts[workload] for workload, n in shares.items())
    # The variance of a median is pi / 2 times that of a mean.
    variance = np.pi / 2 * (noise_after**2 / len(rows) + noise_before**2 * weight)
    reach = float(_NINETY * np.sqrt(variance))
    return shift, shift - reach, shift + reach


def _levels(log_ratios: Values, workloads: Groups) -> dict[int, float]:
    """Workload -> median of its values."""
    rows = groups_of(workloads.tolist())
    return {
        workload: float(np.median(log_ratios[positions])) for workload, positions in rows.items()
    }


def _scale(deviations: Values) -> float:
    """A robust standard deviation: the scaled median absolute deviation."""
    return float(_NORMAL * np.median(np.abs(deviations)))
