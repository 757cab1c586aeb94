"""Designs of high-level synthesis: directives, loops, programs and memory slots."""

from math import log2, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.bundle import Bundle
from forerun.data.errors import BadDesign
from forerun.data.workload import Design
from forerun.features.hls.directives import (
    DESIGN_FEATURES,
    PLACE_COLUMNS,
    TIMINGS,
    check_directives,
    coordinates,
    cycles_bound,
    design_row,
    directed_loops,
    log_share,
    slots_of,
)
from forerun.features.hls.loop_factors import FACTOR_FEATURES, FACTOR_TOTALS, loop_factors
from forerun.features.hls.loop_tree import LOOP_FEATURES, log_cycles, loop_tree
from forerun.features.hls.program_graph import UNKNOWN_TRIPS, loop_nest
from forerun.training.protocols.hls_designs.hls_designs import program_graphs
from tests.programs import nested

# What directives make of loops: copies, steps, bounds.


PROGRAM = nested([16, 64])


def design(program=PROGRAM, **values):
    return Design(program, tuple(sorted((f"__{name}", str(v)) for name, v in values.items())))


def feature(one, name):
    return design_row(one)[DESIGN_FEATURES.index(name)]


@given(st.integers(1, 200), st.sampled_from(["off", "", "flatten"]), st.integers(1, 64))
def test_features_are_finite_and_named(copies, pipe, tile):
    one = design(PARA__L0=copies, PARA__L1=copies, PIPE__L0=pipe, TILE__L0=tile)
    row = design_row(one)
    assert len(row) == len(set(DESIGN_FEATURES)) == len(DESIGN_FEATURES)
    assert np.isfinite(row).all()
    assert len(coordinates(one)) == 2 * len(PLACE_COLUMNS)


@given(st.integers(1, 64), st.integers(1, 64))
def test_more_copies_never_bound_more_steps(one, other):
    few, many = sorted((one, other))
    steps = [directed_loops(design(PARA__L1=n))[1].steps for n in (few, many)]
    assert steps[0] >= steps[1]
    assert steps[1] * many >= 64


@pytest.mark.parametrize("pipe", ["off", ""])
def test_a_flattened_loop_unrolls_what_is_inside(pipe):
    flat = design(PIPE__L0="flatten", PARA__L1=2)
    inner = directed_loops(flat)[1]
    assert inner.unrolled
    assert inner.copies == 64
    assert not directed_loops(design(PIPE__L0=pipe))[1].unrolled
    assert coordinates(flat) == coordinates(design(PIPE__L0="flatten", PARA__L1=8))


def test_dsp_blocks_of_an_unrolled_product_are_those_of_its_operators():
    """64 multipliers of 11 blocks and 64 adders of 3, of 6,840 on the chip (PG060, DS923)."""
    flat = design(PIPE__L0="flatten")
    assert 2.0 ** feature(flat, "dsp_near") == pytest.approx(64 * 14 / 6840 + 1e-3)


def test_directives_for_places_that_are_not_there_change_nothing():
    assert design_row(design(PARA__L7=4)) == design_row(design())


@pytest.mark.parametrize(
    ("timing", "inner"),
    [
        ("", (7 + 6 + 2 + 1 + 1) + 8 * 3 + 7 * 5),
        ("_summed", 60 + 8 * 3 + 7 * 12),
        ("_free", 20 + 8 * 3 + 7),
    ],
)
def test_cycles_of_a_sum_in_eight_copies_by_hand(timing, inner):
    """Sums of 64 numbers in 8 copies: a pipeline to fill, a tree of three levels, 7 steps more.

    Filling takes an addition (7), a product (6), a load (2), an index and a comparison (1 each).
    """
    found = feature(design(PIPE__L0="off", PARA__L1=8), f"log_cycles{timing}")
    assert 2**found == pytest.approx(16 * (inner + 5))


def test_a_flattened_loop_is_one_pipeline_with_a_tree_inside():
    """Its own index and comparison (2), the body (17) and six levels of additions (42)."""
    own = 2
    found = feature(design(PIPE__L0="flatten"), "log_cycles")
    assert 2**found == pytest.approx(own + 17 + 7 * 6 + (16 - 1), rel=0.05)


def test_remainders_are_copies_without_work():
    """64 iterations in 5 copies are 13 steps, of which the last has one iteration too few."""
    one = design(PIPE__L0="off", PARA__L1=5)
    assert 2 ** feature(one, "log_steps") == pytest.approx(16 * 13)
    assert feature(one, "busiest_ragged_0") == pytest.approx(13 * 5 / 64 - 1)
    place = dict(zip(PLACE_COLUMNS, coordinates(one)[len(PLACE_COLUMNS) :], strict=True))
    assert place["copies"] == pytest.approx(np.log2(5))
    assert (place["several"], place["all"], place["ragged"]) == (1.0, 0.0, 1.0)
    whole = coordinates(design(PARA__L1=64))[len(PLACE_COLUMNS) :]
    assert dict(zip(PLACE_COLUMNS, whole, strict=True))["all"] == 1.0


def test_places_weigh_as_the_work_inside_their_loop():
    """The outer loop runs 16 times, the inner one 1,024 times: 4 of 10 in logarithms."""
    both = coordinates(design(PARA__L0=4, PARA__L1=4))
    outer, inner = both[0], both[len(PLACE_COLUMNS)]
    assert outer / inner == pytest.approx(4 / 10)


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_share_of_the_chip_is_seen_from_a_thousandth_up(one, other):
    small, large = sorted((one, other))
    assert log_share(small) <= log_share(large)
    assert 2 ** log_share(0.0) == pytest.approx(1e-3)
    assert 2 ** log_share(large) == pytest.approx(large, abs=1.1e-3)


# Factors of directives together: unrolled bodies, divisibility, and banks of shared arrays.


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


# Features of every loop of a design agree with those of the whole design.


DIRECTIVES = [
    {"__PARA__L1": "4", "__PARA__L0": "3", "__PIPE__L0": ""},
    {"__PARA__L1": "1", "__PARA__L0": "2", "__PIPE__L0": "flatten", "__TILE__L0": "4"},
    {"__PARA__L0": "5", "__PIPE__L0": "off"},
]


def nested_design(trips, directives) -> Design:
    return Design(nested(trips), tuple(sorted(directives.items())))


@pytest.mark.parametrize("directives", DIRECTIVES)
@pytest.mark.parametrize("trips", [[16, 32], [8, 16, 32]])
def test_bounds_in_one_pass_are_those_of_each_loop(trips, directives):
    one = nested_design(trips, directives)
    nest, loops = loop_nest(one.program), directed_loops(one)
    found = log_cycles(loops, TIMINGS.values())
    for own, timing in zip(found, TIMINGS.values(), strict=True):
        wanted = [np.log2(cycles_bound(nest, loops, at, timing)) for at in range(len(loops))]
        assert own == pytest.approx(wanted)


@pytest.mark.parametrize("directives", DIRECTIVES)
def test_the_innermost_loop_has_the_features_of_the_design(directives):
    one = nested_design([16, 32], directives)
    tree, row = loop_tree(one), dict(zip(DESIGN_FEATURES, design_row(one), strict=True))
    inner = dict(zip(LOOP_FEATURES, tree.features[-1], strict=True))
    assert tree.parents.T.tolist() == tree.nested[::-1].T.tolist() == [[0, 1]]
    assert inner["dsp_near"] == pytest.approx(row["dsp_near"])
    assert inner["all_copies"] == pytest.approx(row["copies_sum"])
    assert inner["all_steps"] == pytest.approx(row["log_steps"])
    assert np.isfinite(tree.features).all()


def test_directives_change_no_feature_of_the_program():
    trees = [loop_tree(nested_design([16, 32], directives)) for directives in DIRECTIVES]
    fixed = LOOP_FEATURES.index("copies")
    assert all((tree.features[:, :fixed] == trees[0].features[:, :fixed]).all() for tree in trees)


def test_a_loop_has_all_loops_inside_and_around_it_at_any_distance():
    tree = loop_tree(nested_design([8, 16, 32], {}))
    assert tree.parents.T.tolist() == [[0, 1], [1, 2]]
    assert tree.nested.T.tolist() == [[1, 0], [2, 1], [2, 0]]


# Loops are found, counted and understood from a program graph alone.


TRIPS = st.lists(st.integers(1, 200), min_size=1, max_size=4)


@given(TRIPS)
def test_every_loop_is_found_with_its_trip_count_and_its_parent(trips):
    """And is entered as often as the loops around it run."""
    nest = loop_nest(nested(trips))
    assert [loop.trips for loop in nest.loops] == trips
    assert [loop.parent for loop in nest.loops] == list(range(-1, len(trips) - 1))
    assert [loop.depth for loop in nest.loops] == list(range(len(trips)))
    assert [loop.entered for loop in nest.loops] == [prod(trips[:n]) for n in range(len(trips))]


@given(TRIPS)
def test_the_innermost_loop_holds_the_work_and_the_sum(trips):
    *outer, inner = loop_nest(nested(trips)).loops
    assert {k: n for k, n in inner.counts.items() if n} == {
        **dict.fromkeys(("fadd", "fmul", "load", "iadd", "compare"), 1)
    }
    assert inner.carried
    assert inner.reached == {"%A.addr": inner.trips}
    for loop in outer:
        assert loop.counts["fmul"] == 0
        assert not loop.carried


def test_a_triangular_nest_has_its_mean_trip_count():
    _, inner = loop_nest(nested([101, "%i0"])).loops
    assert inner.trips == pytest.approx(50.0)


def test_a_bound_that_stands_in_memory_is_not_known():
    (loop,) = loop_nest(nested(["%row"])).loops
    assert loop.trips == UNKNOWN_TRIPS


@given(st.integers(0, 50), st.integers(1, 50))
def test_trips_count_from_the_first_value(start, more):
    (loop,) = loop_nest(nested([start + more], start=start)).loops
    assert loop.trips == more


def test_a_program_without_loops_runs_once():
    program = nested([4])
    straight = [i for i, b in enumerate(program.blocks) if b in (0, 2) and program.types[i] == 0]
    plain = type(program)(
        types=(0,) * len(straight),
        texts=tuple(program.texts[i] for i in straight),
        full_texts=tuple(program.full_texts[i] for i in straight),
        edges=tuple((i, i + 1, 0, 0) for i in range(len(straight) - 1)),
        blocks=(0,) * len(straight),
        functions=(0,) * len(straight),
    )
    (loop,) = loop_nest(plain).loops
    assert (loop.trips, loop.entered) == (1.0, 1.0)
    assert loop.counts["fmul"] == 1


@pytest.mark.reference
def test_real_programs_have_the_loops_of_their_sources(reference):
    """Gemm is 64 x 64 x 64; the inner loop of fdtd-2d's last nest is 79 wide (PolyBench)."""
    programs = program_graphs(Bundle.open(reference / "hlsyn"))
    assert [loop.trips for loop in loop_nest(programs["gemm-ncubed"]).loops] == [64.0] * 3
    assert loop_nest(programs["fdtd-2d"]).loops[-1].trips == 79.0
    for program in programs.values():
        nest = loop_nest(program)
        found = {place for loop in nest.loops for place in loop.places.values()}
        asked = sum(kind == 3 for kind in program.types)
        assert len(found) == asked


# Slots of programs, and directives that they do not take.


SLOTS_PROGRAM = nested([16, 32])


def test_slots_are_those_of_the_pragmas():
    assert slots_of(SLOTS_PROGRAM) == (
        *("__PARA__L0", "__PARA__L1", "__PIPE__L0", "__PIPE__L1", "__TILE__L0", "__TILE__L1"),
    )


@pytest.mark.parametrize("value", ["off", "", "flatten"])
def test_pipelines_take_three_values_and_factors_whole_numbers(value):
    check_directives(SLOTS_PROGRAM, {"__PIPE__L1": value, "__PARA__L0": "16", "__TILE__L1": "1"})


@pytest.mark.parametrize(
    ("slot", "value", "said"),
    [
        ("__PARA__L2", "1", "its slots are __PARA__L0"),
        ("__PIPE__L0", "on", "not one of 'off', '', 'flatten'"),
        ("__PARA__L0", "0", "not a whole number from 1"),
        ("__TILE__L0", "2.5", "not a whole number from 1"),
        ("__TILE__L0", "\u0664", "not a whole number from 1"),
    ],
)
def test_other_slots_and_values_are_refused(slot, value, said):
    with pytest.raises(BadDesign, match=said):
        check_directives(SLOTS_PROGRAM, {slot: value})
