"""Joint effect of a design's directive factors: unrolling, divisibility, array partitions.

A loop with as many copies as iterations is fully unrolled. Where this holds for all loops inside a
loop, its body is one pipeline, as if it were flattened, and their copies multiply the operators
inside. Copies can read an array in parallel only if it is partitioned into as many banks. Loops
that index the same dimension of an array need a number of banks divisible by all their numbers of
copies, and factors that do not divide trip counts or tiles leave remainders; the tool then
serialises accesses or copies the array. Logarithms are to base 2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, lcm, log2

import numpy as np

from forerun.data.columns import Column, Matrix
from forerun.data.workload import Design
from forerun.features.hls.directives import (
    DSP_BLOCKS,
    DSP_OF,
    LEAST_SHARE,
    Directed,
    directed_loops,
)
from forerun.features.hls.program_graph import Index, LoopNest, loop_nest

UNROLLING: tuple[str, ...] = (
    *("whole", "body_unrolled", "one_pipeline", "idle_pipe", "parallel_copies", "dsp_parallel"),
)
DIVISIBILITY: tuple[str, ...] = (
    *("copies_twos", "copies_odd", "copies_power", "tile_twos", "tile_odd", "ragged_tile"),
    *("copies_split_tile", "tile_splits_copies", "common_factor", "ragged_in_tile"),
)
PARTITIONS = ("banks", "unaligned", "is_unaligned", "banks_of_array", "banks_of_others")
FACTOR_FEATURES: tuple[str, ...] = (*UNROLLING, *DIVISIBILITY, *PARTITIONS)
"""Features of a loop."""

FACTOR_TOTALS: tuple[str, ...] = (
    *("banks_sum", "banks_most", "unaligned_sum", "unaligned_most", "unaligned_arrays"),
    *("dsp_parallel", "dsp_pipelined", "whole_loops", "unrolled_pipes"),
)
"""Features of a design."""

_WIDE = 0.3
"""Lower bound of the DSP factor for the width of numbers."""
_MOST_BANKS = 10**7


@dataclass(frozen=True)
class LoopFactors:
    """Features of a design with n loops.

    Attributes:
        loops: (n, len(FACTOR_FEATURES)).
        totals: (len(FACTOR_TOTALS),).
    """

    loops: Matrix
    totals: Column


@lru_cache(maxsize=50_000)
def loop_factors(design: Design) -> LoopFactors:
    """The joint effect of a design's directive factors."""
    nest, loops = loop_nest(design.program), directed_loops(design)
    unrolling, dsp_totals = _unrolling(nest, loops)
    partitions, bank_totals = _partitions(
        nest, [_whole_number(directed.copies) for directed in loops]
    )
    rows = [
        [*factors, *_divisibility(directed), *banks]
        for factors, directed, banks in zip(unrolling, loops, partitions, strict=True)
    ]
    return LoopFactors(np.array(rows, dtype=np.float64), np.array([*bank_totals, *dsp_totals]))


def _unrolling(nest: LoopNest, loops: Sequence[Directed]) -> tuple[list[list[float]], list[float]]:
    """`UNROLLING` of each loop, and the totals derived from it."""
    whole = [directed.unrolled or directed.copies >= directed.loop.trips for directed in loops]
    body = [True] * len(loops)
    for at in reversed(range(1, len(loops))):
        outer = loops[at].loop.parent
        if outer >= 0:
            body[outer] = body[outer] and whole[at] and body[at]
    wide, rows, copies = max(nest.wide, _WIDE), [], [0.0] * len(loops)
    pipeline = [False] * len(loops)
    parallel = pipelined = 0.0
    unrolled_pipes = 0
    for at, directed in enumerate(loops):
        flat = directed.unrolled or directed.pipe == "flatten"
        outer = directed.loop.parent
        if whole[at] and directed.pipe != "flatten":
            # With one iteration, it belongs to the pipeline of the enclosing loop.
            pipeline[at] = outer >= 0 and pipeline[outer]
        else:
            pipeline[at] = flat or (body[at] and directed.pipe != "off")
        body[at] = body[at] or flat
        around = copies[outer] if outer >= 0 and body[outer] else 0.0
        copies[at] = log2(directed.copies) + around
        counts = directed.loop.counts.items()
        dsp = wide * sum(DSP_OF.get(kind, 0.0) * n for kind, n in counts) / DSP_BLOCKS
        dsp *= 2.0 ** copies[at]
        parallel += dsp
        pipelined += dsp if pipeline[at] else 0.0
        unrolled_pipes += body[at] and directed.pipe == ""
        idle = whole[at] and body[at]
        rows.append(
            [whole[at], body[at], pipeline[at], idle, copies[at], log2(dsp + LEAST_SHARE)],
        )
    shares = (log2(parallel + LEAST_SHARE), log2(pipelined + LEAST_SHARE))
    return rows, [*shares, float(sum(whole)), float(unrolled_pipes)]


def _divisibility(directed: Directed) -> list[float]:
    """`DIVISIBILITY` of one loop."""
    copies, tile, trips = map(_whole_number, (directed.copies, directed.tile, directed.loop.trips))
    twos, tile_twos = copies & -copies, tile & -tile
    return [
        *(log2(twos), log2(copies // twos), twos == copies),
        *(log2(tile_twos), log2(tile // tile_twos), trips % tile != 0),
        *(tile > 1 and tile % copies != 0, tile > 1 and copies % tile != 0),
        *(log2(gcd(copies, tile)), (trips // tile) % copies != 0),
    ]


def _partitions(nest: LoopNest, copies: Sequence[int]) -> tuple[Matrix, list[float]]:
    """`PARTITIONS` of each loop, shape (n, len(PARTITIONS)), and the totals over the arrays.

    A dimension's banks are the least common multiple of the copies along its indices; `unaligned`
    is the log of that number over the largest number of copies.
    """
    rows = np.zeros((len(copies), len(PARTITIONS)))
    of_arrays, unaligned_of_arrays = [0.0], [0.0]
    for dimensions in nest.arrays:
        whole = unaligned_whole = 0.0
        touched: set[int] = set()
        for indices in dimensions:
            numbers = [_product(copies, index) for index in indices]
            banks = log2(min(lcm(*numbers), _MOST_BANKS))
            unaligned = max(banks - log2(max(numbers)), 0.0)
            whole += banks
            unaligned_whole += unaligned
            for index, number in zip(indices, numbers, strict=True):
                features = [banks, unaligned, unaligned > 0, 0.0, banks - log2(number)]
                touched.update(index)
                for loop in index:
                    rows[loop] = np.maximum(rows[loop], features)
        for loop in touched:
            rows[loop, 3] = max(rows[loop, 3], whole)
        of_arrays.append(whole)
        unaligned_of_arrays.append(unaligned_whole)
    total = sum(2.0**banks for banks in of_arrays[1:])
    return rows, [
        *(log2(total + 1.0), max(of_arrays), sum(unaligned_of_arrays), max(unaligned_of_arrays)),
        float(sum(count > 0 for count in unaligned_of_arrays)),
    ]


def _product(copies: Sequence[int], index: Index) -> int:
    number = 1
    for loop in index:
        number *= copies[loop]
    return number


def _whole_number(value: float) -> int:
    return max(round(value), 1)
