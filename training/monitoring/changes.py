"""Changes of level in a sequence of log(measured / answered), found while they happen.

A two-sided CUSUM (Page 1954) adds up the sequential ranks of the values, each among the earlier
ones of its own workload, less an allowance. It is divided by the growth that autocorrelation gives
to such sums. No level or scale of noise has to be known or estimated, and a workload about which
the answers are always wrong by the same factor adds nothing.
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

    As long as the values of a group are exchangeable, sequential ranks are independent and their
    distribution is known whatever that of the values is (Barndorff-Nielsen 1963; McDonald 1990, "A
    cusum procedure based on sequential ranks", Naval Research Logistics 37). Level, scale and tails
    of a group do not enter, and so groups of different levels and scales may be pooled.

    Args:
        values: n values in the order of time.
        groups: the group of each.

    Returns:
        Shape (n,): mean 0 and variance 1 for exchangeable values without ties, between -sqrt(3) and
        sqrt(3); 0 for the first value of a group, which has nothing to be compared with. Equal
        values have their mean rank.
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
    """By how much the standard deviation of a sum of ranks grows because they are autocorrelated.

    It is that of a first-order autoregressive process, sqrt((1 + r) / (1 - r)), whose coefficient r
    is estimated at each point of time from the ranks before it, shrunk towards 0 with the weight of
    `PRIOR_ROWS` ranks, and limited to 0 to `LARGEST_CORRELATION`.

    Args:
        ranks: n standardised ranks in the order of time.

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
"""Drift of the mean rank, in standard deviations, that the CUSUM lets pass."""
THRESHOLD: Final = 30.0
"""Of the CUSUM. Steady sequences of 10,000 values pass it in well under 1 of 100 cases, whatever
their distribution, and also with a first-order autocorrelation of 0.6."""
LEAST_SHIFT: Final = 0.05
"""Smallest change that is reported, as a logarithm: 5 %. Smaller ones are lasting, and harmless."""
RECHECKED: Final = 25
"""Rows after which a change that was too small is estimated again, while the CUSUM is high."""
_NORMAL: Final = 1.4826
_NINETY: Final = 1.6449


@dataclass(frozen=True, slots=True)
class Change:
    """A lasting change of level.

    Attributes:
        start: position of the first row after the change, as estimated.
        noticed: position of the row at which it was certain.
        shift: by how much log(measured / answered) changed, as a median over the rows after it
            of their distance from the median of the same workload before.
        low, high: approximate 90 % confidence interval of `shift`.
    """

    start: int
    noticed: int
    shift: float
    low: float
    high: float


def changes(log_ratios: Values, workloads: Groups) -> tuple[Change, ...]:
    """All changes of level, the oldest first; after each, a new reference is taken.

    Args:
        log_ratios: n values of log(measured / answered) in the order of time.
        workloads: the workload of each, whose values are compared with each other alone.
    """
    found: list[tuple[int, int]] = []
    begin = 0
    while (change := _first_change(log_ratios[begin:], workloads[begin:])) is not None:
        found.append((begin + change[0], begin + change[1]))
        begin = found[-1][0]
    # The rows before a change go back to the one before it, and those after it to the next.
    bounds = [0, *(start for start, _ in found), len(log_ratios)]
    return tuple(
        Change(start, noticed, *shift_at(log_ratios, workloads, start, bounds[n], bounds[n + 2]))
        for n, (start, noticed) in enumerate(found)
    )


def _first_change(log_ratios: Values, workloads: Groups) -> tuple[int, int] | None:
    """Start and notice of the first change; None where there is none."""
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
    """Height of the one-sided CUSUM after each rank: its rise over its lowest point so far."""
    sums = np.cumsum(ranks - ALLOWANCE)
    return np.asarray(sums - np.minimum(np.minimum.accumulate(sums), 0.0))


def _start(heights: Values, noticed: int) -> int:
    """Position after the last one before `noticed` at which the CUSUM was at its lowest."""
    return int(np.flatnonzero(heights[:noticed] <= 0.0)[-1]) + 1


def _large_enough(log_ratios: Values, workloads: Groups, heights: Values) -> int | None:
    """The first position at which the CUSUM is high and the change is of a size that matters."""
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
    """The row from `start` on that divides the levels before and after best.

    The CUSUM begins to rise a little early; here the sum of absolute deviations from both levels is
    the least.
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
        workloads: the workload of each.
        start: first row after the change.
        begin: first row of the reference.
        end: the row after the last; n when None.

    Returns:
        The shift, and its approximate 90 % confidence interval; three zeros where no workload has
        rows on both sides.
    """
    before, reference = log_ratios[begin:start], workloads[begin:start]
    levels = _levels(before, reference)
    rows = [row for row in range(start, end or len(log_ratios)) if int(workloads[row]) in levels]
    if not rows:
        return 0.0, 0.0, 0.0
    own = workloads[rows].tolist()
    distances = log_ratios[rows] - np.array([levels[workload] for workload in own])
    shift = float(np.median(distances))
    noise_after = _scale(distances - shift)
    noise_before = _scale(before - np.array([levels[workload] for workload in reference.tolist()]))
    shares, counts = Counter(own), Counter(reference.tolist())
    weight = sum((n / len(rows)) ** 2 / counts[workload] for workload, n in shares.items())
    # The variance of a median is pi / 2 times that of a mean.
    variance = np.pi / 2 * (noise_after**2 / len(rows) + noise_before**2 * weight)
    reach = float(_NINETY * np.sqrt(variance))
    return shift, shift - reach, shift + reach


def _levels(log_ratios: Values, workloads: Groups) -> dict[int, float]:
    """Workload -> median of its values."""
    rows = groups_of(workloads.tolist())
    return {workload: float(np.median(log_ratios[own])) for workload, own in rows.items()}


def _scale(deviations: Values) -> float:
    """A standard deviation that a few outliers do not change: the median absolute one, scaled."""
    return float(_NORMAL * np.median(np.abs(deviations)))
