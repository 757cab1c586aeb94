"""Feature matrices of designs, and metrics as logarithms relative to an analytic bound.

Settings of the boosters of `DesignBoost`, and of their average with the loop network.

Cycles of a hardware design divided among the directives of its loops, by Shapley values.

The value of a set of loops is the logarithm of the cycles that are predicted for the design with
the directives on these loops alone. Each set is a design of the same program, so predictors are
evaluated on designs only, never on mixtures of features. A loop's Shapley value is its mean effect
over all orders in which directives may be added (Shapley 1953; Strumbelj and Kononenko 2010). The
values add up to the difference between the design and the program without directives, whatever
the predictor: boosters, the loop network, their average, or an adapted process.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial
from typing import Any, Final

import numpy as np

from forerun.data.columns import Column, Matrix, Positions
from forerun.data.query import Query
from forerun.data.workload import Design
from forerun.features.hls.directives import (
    DESIGN_FEATURES,
    LEAST_SHARE,
    PLACE_COLUMNS,
    coordinates,
    design_row,
    directives_by_loop,
    loop_label,
    only_on,
)
from forerun.features.hls.loop_factors import FACTOR_FEATURES, FACTOR_TOTALS, loop_factors

COMMON: Mapping[str, Any] = {"bagging_fraction": 0.8, "bagging_freq": 1, "objective": "l2"}
"""Parameters of all boosters."""
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "seen": {
        "learning_rate": 0.12,
        "num_leaves": 63,
        "min_data_in_leaf": 9,
        "feature_fraction": 0.5,
        "lambda_l2": 1.0,
    },
    "unseen": {
        "learning_rate": 0.08,
        "num_leaves": 8,
        "min_data_in_leaf": 100,
        "feature_fraction": 0.3,
        "lambda_l2": 20.0,
    },
    "within": {
        "learning_rate": 0.1,
        "num_leaves": 24,
        "min_data_in_leaf": 10,
        "feature_fraction": 0.4,
        "lambda_l2": 1.0,
    },
}
"""Set of boosters -> further parameters."""
TREES: Mapping[str, int] = {"seen": 150, "unseen": 150, "within": 100}
"""Set of boosters -> boosting rounds."""
BAGS: Mapping[str, int] = {"seen": 1, "unseen": 3, "within": 1}
"""Set of boosters -> boosters whose predictions are averaged."""

MEMBERS = 2
"""Networks whose predictions are averaged."""
NETWORK_SHARE: Mapping[str, float] = {
    "latency_cycles": 0.75,
    "util_dsp": 0.7,
    "util_bram": 0.6,
    "util_lut": 0.7,
    "util_ff": 0.6,
}
"""Metric -> weight of the loop network in answers for programs of the training set; the boosters
have the rest. Chosen on the designs that the published protocol sets aside for validation."""


MOST_EXACT: Final = 8
"""Loops with directives up to which all orders count, by all 256 sets of them."""
ORDERS: Final = 64
"""Orders that are drawn where there are more loops, each with its reverse (Castro et al. 2009)."""
SEED: Final = 0

Members = frozenset[int]


@dataclass(frozen=True, slots=True)
class LoopEffects:
    """What the directives of each loop make of the cycles: `base` times all factors.

    Attributes:
        base: cycles that are predicted without directives.
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
    designs = [only_on(design, [loops[at] for at in sorted(own)]) for own in sets]
    logs = dict(zip(sets, np.log2(cycles_of(designs)).tolist(), strict=True))
    effects = _exact(count, logs) if orders is None else _mean(orders, logs)
    labels = [loop_label(loop, own) for loop, own in by_loop.items()]
    factors = dict(zip(labels, np.exp2(effects).tolist(), strict=True))
    return LoopEffects(float(np.exp2(logs[frozenset()])), factors)


def _every(count: int) -> list[Members]:
    """All sets of so many loops."""
    return [frozenset(own) for size in range(count + 1) for own in combinations(range(count), size)]


def _exact(count: int, logs: Mapping[Members, float]) -> Column:
    """Shapley values from the values of all sets, (count,)."""
    effects = np.zeros(count)
    for own, value in logs.items():
        for at in set(range(count)) - own:
            weight = factorial(len(own)) * factorial(count - len(own) - 1) / factorial(count)
            effects[at] += weight * (logs[own | {at}] - value)
    return effects


def _orders(count: int) -> list[tuple[int, ...]]:
    """Orders of so many loops, each followed by its reverse."""
    random = np.random.default_rng(SEED)
    drawn = [tuple(random.permutation(count).tolist()) for _ in range(ORDERS // 2)]
    return [own for order in drawn for own in (order, order[::-1])]


def _along(orders: Iterable[Sequence[int]]) -> list[Members]:
    """The sets that grow along orders, each once."""
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


METRICS = ("latency_cycles", "util_dsp", "util_bram", "util_lut", "util_ff")
ARE_SHARES = np.array([metric != "latency_cycles" for metric in METRICS])
"""Which metrics are shares of the chip; cycles are not."""
FLOORS: Mapping[str, float] = {
    "latency_cycles": 0.0,
    "util_dsp": 0.02,
    "util_bram": 0.02,
    "util_lut": 0.02,
    "util_ff": 0.01,
}
"""Metric -> constant added before the logarithm, because a share of zero is a valid measurement."""

OF_DSP: Mapping[str, float] = {"util_dsp": 1.0, "util_lut": 0.48, "util_ff": 0.36}
"""Metric -> share of the resource that floating-point pipelines take, per share of DSP blocks."""

LEAST = 1e-4
"""Smallest value that is predicted."""
ROUNDED = 0.005
"""Half a unit of the last decimal of published shares; a lower end below it is reported as 0."""

LOOPS = 10
"""Loops whose directives are individual features of the boosters for seen programs."""

_LEVELLED = ("copies", "pipe", "ragged")
_TOTALS = ("steps", "copies", "near_copies", "flat")
BOUNDS: tuple[str, ...] = (
    *("log_cycles", "log_longest", "log_steps", "dsp_all", "dsp_near", "dsp_widest"),
    *("copies_most", "copies_sum", "pipes_off", "pipes_on", "pipes_flatten", "unrolled"),
    *("para", "para_outer", "tiles"),
    *(f"{leaf}_{name}" for leaf in ("busiest", "widest") for name in _TOTALS),
    *(
        f"{leaf}_{name}_{level}"
        for leaf in ("busiest", "widest")
        for name in _LEVELLED
        for level in range(3)
    ),
)
"""Features that differ between designs of one program; inputs of the Gaussian process."""

FEATURES = (*DESIGN_FEATURES, "tool_version")
"""Columns of `feature_matrix`."""

NETWORK_FEATURES = (*FEATURES, *FACTOR_TOTALS)
"""Columns of `network_matrix`."""

BOUND_COLUMNS = [DESIGN_FEATURES.index(name) for name in BOUNDS]
"""Columns of `BOUNDS` in `feature_matrix`."""
_DSP_NEAR = DESIGN_FEATURES.index("dsp_near")
_FLOORS = np.array([FLOORS[metric] for metric in METRICS])
_BOUNDED = [METRICS.index(metric) for metric in OF_DSP]
_OF_DSP = np.array(list(OF_DSP.values()))
Key = tuple[str, str]
"""Digest of a program, version of the tool."""


def feature_matrix(queries: Sequence[Query]) -> Matrix:
    """Features of n designs and of the tool version, shape (n, len(FEATURES))."""
    rows = [(*design_row(query.design), query.software.version_number or 0.0) for query in queries]
    return np.array(rows)


def place_matrix(queries: Sequence[Query]) -> Matrix:
    """Directives and factors of each loop, cut or padded with 0 to LOOPS loops, and FACTOR_TOTALS.

    Returns:
        Shape (n, LOOPS x (len(PLACE_COLUMNS) + len(FACTOR_FEATURES)) + len(FACTOR_TOTALS)).
    """
    of_places, of_factors = (LOOPS * len(names) for names in (PLACE_COLUMNS, FACTOR_FEATURES))
    matrix = np.zeros((len(queries), of_places + of_factors + len(FACTOR_TOTALS)))
    for row, query in enumerate(queries):
        values, factors = coordinates(query.design)[:of_places], loop_factors(query.design)
        matrix[row, : len(values)] = values
        own = factors.loops[:LOOPS].ravel()
        matrix[row, of_places : of_places + len(own)] = own
        matrix[row, of_places + of_factors :] = factors.totals
    return matrix


def network_matrix(queries: Sequence[Query], matrix: Matrix) -> Matrix:
    """Features of n designs for the loop network, (n, len(NETWORK_FEATURES)).

    Args:
        queries: n designs.
        matrix: their features, (n, len(FEATURES)).
    """
    return np.hstack([matrix, [loop_factors(query.design).totals for query in queries]])


def log_values(values: Matrix) -> Matrix:
    """log2 of the five metrics, floors included, of n designs, (n, len(METRICS))."""
    return np.asarray(np.log2(values + _FLOORS))


def log_bounds(matrix: Matrix) -> Matrix:
    """log2 of the bounds, (n, len(METRICS)); 0 for cycles and block memory, which have none."""
    near = 2.0 ** matrix[:, _DSP_NEAR] - LEAST_SHARE
    bounds = np.zeros((len(matrix), len(METRICS)))
    bounds[:, _BOUNDED] = np.log2(near[:, None] * _OF_DSP + _FLOORS[_BOUNDED])
    return bounds


def from_logarithms(logs: Matrix) -> Matrix:
    """Values of the five metrics from their log2, floors subtracted; never negative."""
    return np.asarray(np.maximum(2.0 ** np.minimum(logs, 60.0) - _FLOORS, 0.0))


def by_metric(values: Matrix) -> dict[str, Column]:
    """The columns of (n, len(METRICS)) by their metrics."""
    return dict(zip(METRICS, values.T, strict=True))


def deviations_within(matrix: Matrix, program: Positions) -> tuple[float, ...]:
    """Median over programs of each column's standard deviation within a program.

    Args:
        matrix: n designs, shape (n, columns).
        program: index of each design's program, shape (n,).

    Returns:
        One number per column; 1 for a column that varies within no program.
    """
    within = np.array([matrix[program == index].std(axis=0) for index in np.unique(program)])
    medians = [
        np.median(column[column > 1e-6]) if (column > 1e-6).any() else 1.0 for column in within.T
    ]
    return tuple(float(value) for value in medians)


def unit_rows(matrix: Matrix) -> Matrix:
    """The matrix centred and scaled so that its rows have a mean squared length of 1."""
    centred = matrix - matrix.mean(axis=0)
    return np.asarray(centred / max(float(np.sqrt((centred**2).sum(axis=1).mean())), 1e-9))


def program_key(query: Query) -> Key:
    """Digest of the query's program and version of the tool."""
    return query.design.program.digest, str(query.software.version)
