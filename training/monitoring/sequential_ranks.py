"""Standardised sequential ranks: each value's rank among the earlier values of its group.

As long as the values of a group are exchangeable, sequential ranks are independent and their
distribution is known whatever that of the values is (Barndorff-Nielsen 1963; McDonald 1990, "A
cusum procedure based on sequential ranks", Naval Research Logistics 37). Level, scale and tails of
a group do not enter, and so groups of different levels and scales may be pooled.
"""

from bisect import bisect_left, bisect_right, insort

import numpy as np

from forerun.data.shapes import Float64, Int


def sequential_ranks(
    values: Float64[np.ndarray, " n"], groups: Int[np.ndarray, " n"]
) -> Float64[np.ndarray, " n"]:
    """The standardised sequential rank of each value.

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


def autocorrelation_scales(ranks: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
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
    scales: Float64[np.ndarray, " n"] = np.sqrt((1.0 + correlation) / (1.0 - correlation))
    return scales


PRIOR_ROWS = 50
LARGEST_CORRELATION = 0.8
