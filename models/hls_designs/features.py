"""Designs as rows for boosters and processes, and measurements as logarithms over a bound."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.data.query import Query
from forerun.data.workload import Design
from forerun.features.hls.directives import (
    DESIGN_FEATURES,
    LEAST_SHARE,
    PLACE_COLUMNS,
    coordinates,
    design_row,
)

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
METRICS = ("latency_cycles", "util_dsp", "util_bram", "util_lut", "util_ff")
FLOORS: Mapping[str, float] = {
    "latency_cycles": 0.0,
    "util_dsp": 0.02,
    "util_bram": 0.02,
    "util_lut": 0.02,
    "util_ff": 0.01,
}
"""Added before the logarithm, for a share of zero is a measurement."""

OF_DSP: Mapping[str, float] = {"util_dsp": 1.0, "util_lut": 0.48, "util_ff": 0.36}
"""Share that a pipeline of floating-point operators takes, per share of DSP blocks."""

LEAST = 1e-4
ROUNDED = 0.005
"""Shares are published to two decimals: what may be zero has no lower end."""

LOOPS = 10
"""Loops whose directives the boosters of seen programs look at one by one."""

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
"""Features that tell designs of one program apart, for the process."""

FEATURES = (*DESIGN_FEATURES, "tool_version")
"""Columns of `feature_matrix`."""

BOUND_COLUMNS = [DESIGN_FEATURES.index(name) for name in BOUNDS]
Key = tuple[str, str]
"""Digest of a program, version of a tool."""


def feature_matrix(queries: Sequence[Query]) -> Matrix:
    """Features of designs and their tool, shape (n, len(FEATURES))."""
    rows = [
        (*design_row(design_of(query)), query.software.version_number or 0.0) for query in queries
    ]
    return np.array(rows)


def place_matrix(queries: Sequence[Query]) -> Matrix:
    """Coordinates of designs among those of their own program, cut or filled to `LOOPS` loops."""
    width = LOOPS * len(PLACE_COLUMNS)
    found = np.zeros((len(queries), width))
    for row, query in enumerate(queries):
        place = coordinates(design_of(query))[:width]
        found[row, : len(place)] = place
    return found


def log_over_bound(metric: str, measured: Column, matrix: Matrix) -> Column:
    """log2 of what was measured over its bound, shape (n,)."""
    return np.asarray(np.log2(measured + FLOORS[metric]) - log_bound(metric, matrix))


def log_bound(metric: str, matrix: Matrix) -> Column:
    """log2 of the bound; cycles and block memory have none that helps."""
    if metric not in OF_DSP:
        return np.zeros(len(matrix))
    near = 2.0 ** matrix[:, DESIGN_FEATURES.index("dsp_near")] - LEAST_SHARE
    return np.asarray(np.log2(OF_DSP[metric] * near + FLOORS[metric]))


def from_logarithm(metric: str, log_value: Column) -> Column:
    """A metric from its log2, floor included; never negative."""
    return np.asarray(np.maximum(2.0 ** np.minimum(log_value, 60.0) - FLOORS[metric], 0.0))


def deviations_within(matrix: Matrix, place: NDArray[np.intp]) -> tuple[float, ...]:
    """Median over programs of each column's deviation within them; 1 where none varies."""
    within = np.array([matrix[place == one].std(axis=0) for one in np.unique(place)])
    medians = [
        np.median(column[column > 1e-6]) if (column > 1e-6).any() else 1.0 for column in within.T
    ]
    return tuple(float(value) for value in medians)


def unit_rows(matrix: Matrix) -> Matrix:
    """Centred, with rows of mean square length 1."""
    centred = matrix - matrix.mean(axis=0)
    return np.asarray(centred / max(float(np.sqrt((centred**2).sum(axis=1).mean())), 1e-9))


def design_of(query: Query) -> Design:
    """The design that a query asks about."""
    assert isinstance(query.workload, Design)
    return query.workload


def program_key(query: Query) -> Key:
    """Program and tool version."""
    return design_of(query).program.digest, str(query.software.version)
