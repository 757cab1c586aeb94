"""Feature matrices of designs, and metrics as logarithms relative to an analytic bound."""

from collections.abc import Mapping, Sequence

import numpy as np

from forerun.data.columns import Column, Matrix, Positions
from forerun.data.query import Query
from forerun.features.hls.directives import (
    DESIGN_FEATURES,
    LEAST_SHARE,
    PLACE_COLUMNS,
    coordinates,
    design_row,
)

METRICS = ("latency_cycles", "util_dsp", "util_bram", "util_lut", "util_ff")
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

BOUND_COLUMNS = [DESIGN_FEATURES.index(name) for name in BOUNDS]
"""Columns of `BOUNDS` in `feature_matrix`."""
Key = tuple[str, str]
"""Digest of a program, version of the tool."""


def feature_matrix(queries: Sequence[Query]) -> Matrix:
    """Features of n designs and of the tool version, shape (n, len(FEATURES))."""
    rows = [(*design_row(query.design), query.software.version_number or 0.0) for query in queries]
    return np.array(rows)


def place_matrix(queries: Sequence[Query]) -> Matrix:
    """Directives at each loop, cut or padded with 0 to LOOPS loops, one row per design.

    Returns:
        Shape (n, LOOPS x len(PLACE_COLUMNS)).
    """
    width = LOOPS * len(PLACE_COLUMNS)
    matrix = np.zeros((len(queries), width))
    for row, query in enumerate(queries):
        values = coordinates(query.design)[:width]
        matrix[row, : len(values)] = values
    return matrix


def log_over_bound(metric: str, measured: Column, matrix: Matrix) -> Column:
    """log2 of the measured values, floor included, relative to the bound, shape (n,)."""
    return np.asarray(np.log2(measured + FLOORS[metric]) - log_bound(metric, matrix))


def log_bound(metric: str, matrix: Matrix) -> Column:
    """log2 of the bound, shape (n,); 0 for cycles and block memory, where no bound is used."""
    if metric not in OF_DSP:
        return np.zeros(len(matrix))
    near = 2.0 ** matrix[:, DESIGN_FEATURES.index("dsp_near")] - LEAST_SHARE
    return np.asarray(np.log2(OF_DSP[metric] * near + FLOORS[metric]))


def from_logarithm(metric: str, log_value: Column) -> Column:
    """Values of a metric from their log2, with the floor subtracted; never negative."""
    return np.asarray(np.maximum(2.0 ** np.minimum(log_value, 60.0) - FLOORS[metric], 0.0))


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
