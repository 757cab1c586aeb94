"""The loops of a design as a tree, with features of each loop and its directives.

The features are those of `features.hls.directives`, for every loop rather than the busiest one:
operations per iteration, copies, steps, bounds on cycles and DSP blocks. Logarithms are to base 2.
The joint effect of directive factors is in `features.hls.loop_factors`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log2

import numpy as np
from numpy.typing import NDArray

from forerun.data.columns import Matrix
from forerun.data.program import ProgramGraph
from forerun.data.workload import Design
from forerun.features.hls.directives import (
    DELAY_OF,
    DSP_BLOCKS,
    DSP_OF,
    LEAST_SHARE,
    TIMINGS,
    Directed,
    Timing,
    directed_loops,
)
from forerun.features.hls.instructions import KINDS
from forerun.features.hls.loop_factors import FACTOR_FEATURES, loop_factors
from forerun.features.hls.program_graph import Loop, LoopNest, loop_nest

PROGRAM_FEATURES: tuple[str, ...] = (
    *("trips", "entered", "depth", "innermost", "inner_loops", "reduction", "carried"),
    *("arrays", "elements"),
    *(f"count_{kind}" for kind in KINDS),
    *("has_para", "has_pipe", "has_tile", "wide"),
)
"""Features of a loop that directives do not change."""

DIRECTIVE_FEATURES: tuple[str, ...] = (
    *("copies", "several", "all", "remainder", "ragged", "tile", "tiled", "whole_tile"),
    *("pipe_off", "pipe_on", "pipe_flatten", "pipe_none", "unrolled"),
    *("steps", "all_steps", "all_copies", "near_copies", "directed_copies", "flat"),
    *(f"log_cycles{suffix}" for suffix in TIMINGS),
    *("dsp_near", "dsp_all", "operations_near", "operations_all"),
    "log_cycles_total",
)
"""Features of a loop under directives; `log_cycles_total` includes the steps of loops around it."""

LOOP_FEATURES = (*PROGRAM_FEATURES, *DIRECTIVE_FEATURES, *FACTOR_FEATURES)
_WIDE = 0.3
"""Lower bound of the DSP factor for the width of numbers."""


@dataclass(frozen=True)
class LoopTree:
    """The n loops of a design, outer before inner.

    Attributes:
        features: (n, len(LOOP_FEATURES)).
        parents: (2, edges) positions of a loop and of one directly inside it.
        nested: (2, edges) positions of a loop inside another at any depth, and of that other.
    """

    features: Matrix
    parents: NDArray[np.intp]
    nested: NDArray[np.intp]


@lru_cache(maxsize=50_000)
def loop_tree(design: Design) -> LoopTree:
    """The loops of a design under its directives."""
    nest, loops = loop_nest(design.program), directed_loops(design)
    program = _program_matrix(design.program)
    factors = loop_factors(design).loops
    features = np.hstack([program, _directive_matrix(nest, loops), factors])
    return LoopTree(features, *_relations(design.program))


@lru_cache(maxsize=256)
def _relations(program: ProgramGraph) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """`parents` and `nested` of a program's loops."""
    nest = loop_nest(program)
    around = [nest.around(at)[1:] for at in range(len(nest.loops))]
    parents = [(outer[0], at) for at, outer in enumerate(around) if outer]
    nested = [(at, inside) for at, outer in enumerate(around) for inside in outer]
    return _edges(parents), _edges(nested)


def _edges(pairs: Sequence[tuple[int, int]]) -> NDArray[np.intp]:
    return np.array(pairs, dtype=np.intp).reshape(-1, 2).T


@lru_cache(maxsize=256)
def _program_matrix(program: ProgramGraph) -> Matrix:
    """`PROGRAM_FEATURES` of each loop."""
    nest = loop_nest(program)
    rows = []
    for at, loop in enumerate(nest.loops):
        inner, places = len(nest.inside(at)), loop.places
        rows.append(
            [
                *(np.log2(loop.trips), np.log2(max(loop.entered, 1.0)), loop.depth),
                *(inner == 0, inner, loop.reduction, loop.carried),
                *(len(loop.reached), np.log2(1.0 + sum(loop.reached.values()))),
                *(np.log2(1.0 + loop.counts[kind]) for kind in KINDS),
                *(name in places for name in ("PARA", "PIPE", "TILE")),
                max(nest.wide, _WIDE),
            ]
        )
    return np.array(rows, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class _Around:
    """Log factors by which a loop and its enclosing loops multiply its body.

    Attributes:
        steps: sequential iterations of all of them.
        copies: copies of the body by all of them.
        directed: copies by directives only, excluding what flattened loops unroll.
        flat_copies: copies by enclosing loops that are flattened or unrolled.
        flat: number of flattened or unrolled loops, including this one.
    """

    steps: float = 0.0
    copies: float = 0.0
    directed: float = 0.0
    flat_copies: float = 0.0
    flat: int = 0


def _directive_matrix(nest: LoopNest, loops: Sequence[Directed]) -> Matrix:
    """`DIRECTIVE_FEATURES` of each loop."""
    cycles = log_cycles(loops, TIMINGS.values())
    around: list[_Around] = []
    rows = []
    for at, directed in enumerate(loops):
        outer = around[directed.loop.parent] if directed.loop.parent >= 0 else _Around()
        copies, steps = log2(directed.copies), log2(directed.steps)
        is_flat = directed.unrolled or directed.pipe == "flatten"
        near = copies + outer.flat_copies
        here = _Around(
            outer.steps + steps,
            outer.copies + copies,
            outer.directed + (0.0 if directed.unrolled else copies),
            near if is_flat else outer.flat_copies,
            outer.flat + is_flat,
        )
        around.append(here)
        rows.append(
            [
                *_own_features(directed, copies),
                *(steps, here.steps, here.copies, near, here.directed, here.flat),
                *(bound[at] for bound in cycles),
                *_resources(nest, directed.loop, near, here.copies),
                cycles[0][at] + outer.steps,
            ]
        )
    return np.array(rows, dtype=np.float64)


def _own_features(directed: Directed, copies: float) -> list[float]:
    """Features of the directives on one loop in isolation."""
    trips, rest = directed.loop.trips, directed.steps * directed.copies / directed.loop.trips - 1.0
    flags = (directed.copies > 1, directed.copies >= trips)
    tiles = (log2(directed.tile), directed.tile > 1, directed.tile >= trips)
    pipes = [directed.pipe == name for name in ("off", "", "flatten", None)]
    return [copies, *flags, rest, rest > 1e-6, *tiles, *pipes, directed.unrolled]


def _resources(nest: LoopNest, loop: Loop, near: float, every: float) -> list[float]:
    """Bounds on DSP blocks and operators of a loop's body, for its nearest copies and for all."""
    dsp = max(nest.wide, _WIDE) * _weighted(DSP_OF, loop.counts, 0.0) / DSP_BLOCKS
    operations = float(sum(loop.counts.values()))
    copies = (2.0**near, 2.0**every)
    return [
        *(log2(dsp * number + LEAST_SHARE) for number in copies),
        *(log2(operations * number + 1.0) for number in copies),
    ]


def log_cycles(loops: Sequence[Directed], timings: Collection[Timing]) -> list[list[float]]:
    """log2 of `directives.cycles_bound` for each timing and loop, in one pass."""
    inner: list[list[int]] = [[] for _ in loops]
    for at, directed in enumerate(loops):
        if directed.loop.parent >= 0:
            inner[directed.loop.parent].append(at)
    fills, bounds = [0.0] * len(loops), [[0.0] * len(loops) for _ in timings]
    for at in reversed(range(len(loops))):
        directed = loops[at]
        fills[at] = _weighted(DELAY_OF, directed.loop.counts, 1.0) + sum(
            fills[i] for i in inner[at]
        )
        if directed.loop.carried and directed.unrolled:
            fills[at] += DELAY_OF["fadd"] * log2(directed.loop.trips)
        for bound, timing in zip(bounds, timings, strict=True):
            bound[at] = _bound(directed, timing, fills[at], [bound[i] for i in inner[at]])
    return [[log2(max(cycles, 1.0)) for cycles in bound] for bound in bounds]


def _bound(directed: Directed, timing: Timing, fill: float, inner: Sequence[float]) -> float:
    """Bound on the cycles of a loop from those of the loops directly inside it."""
    if not inner or directed.pipe == "flatten":
        depth = fill if timing.depth is None else timing.depth
        apart = timing.carried if directed.loop.carried else 1.0
        return depth + 8.0 * log2(directed.copies) + (directed.steps - 1.0) * apart
    together = timing.overlaps and directed.pipe == ""
    return directed.steps * ((max(inner) if together else sum(inner)) + 5.0)


def _weighted(weights: Mapping[str, float], counts: Mapping[str, int], other: float) -> float:
    return sum(weights.get(kind, other) * n for kind, n in counts.items() if n)
