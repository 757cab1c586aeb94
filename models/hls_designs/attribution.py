"""Attributes a hardware design's cycles to the directives of its loops, by Shapley values.

The value of a set of loops is the logarithm of the cycles predicted for the design with only the
directives on these loops. Each set is a design of the same program, so predictors are evaluated on
designs only, never on mixtures of features. A loop's Shapley value is its mean effect over all
orders of adding directives (Shapley 1953; Strumbelj and Kononenko 2010). The values add up to the
difference between the design and the program without directives, for any predictor: boosters, the
loop network, their average, or an adapted process.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial
from typing import Final

import numpy as np

from forerun.data.columns import Column
from forerun.data.workload import Design
from forerun.features.hls.directives import directives_by_loop, loop_label, only_on

MOST_EXACT: Final = 8
"""Maximum number of loops with directives for exact values, from all 256 sets of them."""
ORDERS: Final = 64
"""Orders drawn for more loops, each with its reverse (Castro et al. 2009)."""
SEED: Final = 0
Members = frozenset[int]


@dataclass(frozen=True, slots=True)
class LoopEffects:
    """Effect of each loop's directives on the cycles: `base` times all factors.

    Attributes:
        base: predicted cycles without directives.
        factors: label of a loop with its directives -> factor on the cycles.
    """

    base: float
    factors: dict[str, float]


def loop_effects(design: Design, cycles_of: Callable[[Sequence[Design]], Column]) -> LoopEffects:
    """The factor of each loop's directives on the predicted cycles.

    Args:
        design: a design.
        cycles_of: n designs of its program -> predicted cycles, (n,).
    """
    by_loop = directives_by_loop(design)
    loops, count = list(by_loop), len(by_loop)
    orders = None if count <= MOST_EXACT else _orders(count)
    sets = _every(count) if orders is None else _along(orders)
    designs = [only_on(design, [loops[at] for at in sorted(members)]) for members in sets]
    logs = dict(zip(sets, np.log2(cycles_of(designs)).tolist(), strict=True))
    effects = _exact(count, logs) if orders is None else _mean(orders, logs)
    labels = [loop_label(loop, directives) for loop, directives in by_loop.items()]
    factors = dict(zip(labels, np.exp2(effects).tolist(), strict=True))
    return LoopEffects(float(np.exp2(logs[frozenset()])), factors)


def _every(count: int) -> list[Members]:
    """All subsets of `count` loops."""
    return [
        frozenset(members)
        for size in range(count + 1)
        for members in combinations(range(count), size)
    ]


def _exact(count: int, logs: Mapping[Members, float]) -> Column:
    """Shapley values computed from the values of all sets, (count,)."""
    effects = np.zeros(count)
    for members, value in logs.items():
        for at in set(range(count)) - members:
            weight = (
                factorial(len(members)) * factorial(count - len(members) - 1) / factorial(count)
            )
            effects[at] += weight * (logs[members | {at}] - value)
    return effects


def _orders(count: int) -> list[tuple[int, ...]]:
    """Random orders of `count` loops, each followed by its reverse."""
    random = np.random.default_rng(SEED)
    drawn = [tuple(random.permutation(count).tolist()) for _ in range(ORDERS // 2)]
    return [direction for order in drawn for direction in (order, order[::-1])]


def _along(orders: Iterable[Sequence[int]]) -> list[Members]:
    """The distinct sets that occur while following the orders."""
    sets = (frozenset(order[:size]) for order in orders for size in range(len(order) + 1))
    return list(dict.fromkeys(sets))


def _mean(orders: Sequence[Sequence[int]], logs: Mapping[Members, float]) -> Column:
    """Mean effect of each loop over these orders, (count,)."""
    effects = np.zeros(len(orders[0]))
    for order in orders:
        for size, at in enumerate(order):
            before = frozenset(order[:size])
            effects[at] += (logs[before | {at}] - logs[before]) / len(orders)
    return effects
