"""Factors of directives together: unrolled bodies, divisibility, and banks of shared arrays."""

from math import log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.workload import Design
from forerun.features.hls.loop_factors import FACTOR_FEATURES, FACTOR_TOTALS, loop_factors
from forerun.features.hls.program_graph import loop_nest
from tests.programs import nested

TRANSPOSED = (
    "%a = load [64 x double]*, [64 x double]** %A.addr, align 8",
    "%x = load i32, i32* %i0, align 4",
    "%e = sext i32 %x to i64",
    "%y = load i32, i32* %i1, align 4",
    "%f = sext i32 %y to i64",
    "%p = getelementptr inbounds [64 x double], [64 x double]* %a, i64 %e",
    "%q = getelementptr inbounds [64 x double], [64 x double]* %p, i64 0, i64 %f",
    "%v = load double, double* %q, align 8",
    "%r = getelementptr inbounds [64 x double], [64 x double]* %a, i64 %f",
    "%s = getelementptr inbounds [64 x double], [64 x double]* %r, i64 0, i64 %e",
    "%w = load double, double* %s, align 8",
    "%m = fmul double %v, %w",
    "store double %m, double* %q, align 8",
)
"""A[i][j] = A[i][j] * A[j][i]."""


def factors(program, **directives):
    """Features of each loop, and totals, by name."""
    values = tuple(sorted((name, str(value)) for name, value in directives.items()))
    found = loop_factors(Design(program, values))
    loops = [dict(zip(FACTOR_FEATURES, row, strict=True)) for row in found.loops]
    return loops, dict(zip(FACTOR_TOTALS, found.totals, strict=True))


@given(
    st.integers(1, 70),
    st.integers(1, 70),
    st.integers(1, 70),
    st.sampled_from(["off", "", "flatten"]),
)
def test_factors_are_finite_and_named(copies, outer, tile, pipe):
    directives = {"__PARA__L1": copies, "__PARA__L0": outer, "__TILE__L0": tile, "__PIPE__L0": pipe}
    loops, totals = factors(nested([16, 64], TRANSPOSED), **directives)
    assert np.isfinite([[*row.values()] for row in loops]).all()
    assert np.isfinite([*totals.values()]).all()


@pytest.mark.parametrize("outer", [1, 4])
def test_copies_of_all_iterations_inside_are_as_good_as_a_flattened_loop(outer):
    program = nested([16, 64])
    flat, _ = factors(program, __PIPE__L0="flatten", __PARA__L0=outer)
    copied, _ = factors(program, __PIPE__L0="", __PARA__L0=outer, __PARA__L1=64)
    part, _ = factors(program, __PIPE__L0="", __PARA__L0=outer, __PARA__L1=32)
    for name in ("whole", "body_unrolled", "one_pipeline", "parallel_copies", "dsp_parallel"):
        assert [row[name] for row in flat] == [row[name] for row in copied]
    assert copied[1]["parallel_copies"] == pytest.approx(log2(64 * outer))
    # The outer loop's copies do not multiply what is not unrolled whole.
    assert part[1]["parallel_copies"] == pytest.approx(5.0)
    assert not part[0]["one_pipeline"]


def test_without_a_pipeline_unrolled_operators_are_not_pipelined():
    program = nested([16, 64])
    _, on = factors(program, __PIPE__L0="", __PARA__L1=64)
    _, off = factors(program, __PIPE__L0="off", __PARA__L1=64)
    assert on["dsp_pipelined"] == on["dsp_parallel"] == off["dsp_parallel"]
    assert (on["unrolled_pipes"], off["unrolled_pipes"]) == (1.0, 0.0)
    assert off["dsp_pipelined"] < off["dsp_parallel"]


def test_indices_of_an_array_are_known_by_dimension():
    nest = loop_nest(nested([16, 64], TRANSPOSED))
    assert [set(dimension) for dimension in nest.arrays[0]] == [{(0,), (1,)}, {(0,), (1,)}]
    assert loop_nest(nested([16, 64])).arrays == ((((1,),),),)


@pytest.mark.parametrize(
    ("outer", "inner", "banks", "unaligned"),
    [(4, 8, 8, 1), (4, 6, 12, 2), (3, 1, 3, 1), (5, 8, 40, 5)],
)
def test_banks_are_common_multiples_of_copies_along_one_dimension(outer, inner, banks, unaligned):
    """A[i][j] and A[j][i] need both dimensions in banks that both numbers of copies divide."""
    loops, totals = factors(nested([64, 64], TRANSPOSED), __PARA__L0=outer, __PARA__L1=inner)
    for loop, copies in zip(loops, (outer, inner), strict=True):
        assert loop["banks"] == pytest.approx(log2(banks))
        assert loop["unaligned"] == pytest.approx(log2(unaligned))
        assert loop["is_unaligned"] == (unaligned > 1)
        assert loop["banks_of_others"] == pytest.approx(log2(banks / copies))
        assert loop["banks_of_array"] == pytest.approx(2 * log2(banks))
    assert totals["banks_most"] == pytest.approx(2 * log2(banks))
    assert totals["unaligned_sum"] == pytest.approx(2 * log2(unaligned))
    assert totals["unaligned_arrays"] == (unaligned > 1)


@pytest.mark.parametrize(
    ("copies", "tile", "expected"),
    [
        (12, 1, {"copies_twos": 2, "copies_odd": log2(3), "copies_power": 0, "ragged_in_tile": 1}),
        (8, 4, {"copies_power": 1, "tile_twos": 2, "copies_split_tile": 1}),
        (4, 8, {"copies_split_tile": 0, "tile_splits_copies": 1, "common_factor": 2}),
        (4, 6, {"tile_odd": log2(3), "ragged_tile": 1, "common_factor": 1}),
    ],
)
def test_divisibility_by_hand(copies, tile, expected):
    loops, _ = factors(nested([16, 64]), __PARA__L1=copies, __TILE__L1=tile)
    assert {name: loops[1][name] for name in expected} == pytest.approx(expected)
