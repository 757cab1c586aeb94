"""Feature matrices of designs, and metrics as logarithms relative to an analytic bound."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from forerun.data.columns import Column, Matrix, Positions
from forerun.data.facts import facts_of
from forerun.data.query import Query
from forerun.features.hls.directives import (
    DESIGN_FEATURES,
    LEAST_SHARE,
    PLACE_COLUMNS,
    coordinates,
    design_row,
)
from forerun.features.hls.loop_factors import FACTOR_FEATURES, FACTOR_TOTALS, loop_factors

_FACTS: Final = facts_of(__file__)
METRICS = tuple(_FACTS)


def facts_by_metric(field: str) -> dict[str, Any]:
    """Metric -> a field of `features.toml`, for the metrics that have it."""
    return {metric: facts[field] for metric, facts in _FACTS.items() if field in facts}


ARE_SHARES = np.array([metric != "latency_cycles" for metric in METRICS])
"""Which metrics are shares of the chip; cycles are not."""
FLOORS: Mapping[str, float] = facts_by_metric("floor")
"""Metric -> constant added before the logarithm, because zero is a valid share."""

OF_DSP: Mapping[str, float] = facts_by_metric("of_dsp")
"""Metric -> share of the resource used by floating-point pipelines, per share of DSP blocks."""

LEAST = 1e-4
"""Smallest predicted value."""
ROUNDED = 0.005
"""Half a unit of the last decimal of published shares; a lower end below it is reported as 0."""

LOOPS = 10
"""Loops whose directives are separate features of the boosters for seen programs."""

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
    """Directives and factors of each loop, truncated or zero-padded to LOOPS, and FACTOR_TOTALS.

    Returns:
        Shape (n, LOOPS x (len(PLACE_COLUMNS) + len(FACTOR_FEATURES)) + len(FACTOR_TOTALS)).
    """
    of_places, of_factors = (LOOPS * len(names) for names in (PLACE_COLUMNS, FACTOR_FEATURES))
    matrix = np.zeros((len(queries), of_places + of_factors + len(FACTOR_TOTALS)))
    for row, query in enumerate(queries):
        values, factors = coordinates(query.design)[:of_places], loop_factors(query.design)
        matrix[row, : len(values)] = values
        loop_features = factors.loops[:LOOPS].ravel()
        matrix[row, of_places : of_places + len(loop_features)] = loop_features
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
    """log2 of the five metrics plus floors, of n designs, (n, len(METRICS))."""
    return np.asarray(np.log2(values + _FLOORS))


def log_bounds(matrix: Matrix) -> Matrix:
    """log2 of the bounds, (n, len(METRICS)); 0 for cycles and block memory, which have none."""
    near = 2.0 ** matrix[:, _DSP_NEAR] - LEAST_SHARE
    bounds = np.zeros((len(matrix), len(METRICS)))
    bounds[:, _BOUNDED] = np.log2(near[:, None] * _OF_DSP + _FLOORS[_BOUNDED])
    return bounds


def from_logarithms(logs: Matrix) -> Matrix:
    """Values of the five metrics from their log2, less floors; never negative."""
    return np.asarray(np.maximum(2.0 ** np.minimum(logs, 60.0) - _FLOORS, 0.0))


def by_metric(values: Matrix) -> dict[str, Column]:
    """The columns of (n, len(METRICS)) by metric."""
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
