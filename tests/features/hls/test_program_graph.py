"""Loops are found, counted and understood from a program graph alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.bundle import Bundle
from forerun.features.hls.program_graph import UNKNOWN_TRIPS, loop_nest
from forerun.training.protocols.hls_designs.hlsyn import program_graphs
from tests.programs import nested

TRIPS = st.lists(st.integers(1, 200), min_size=1, max_size=4)


@given(TRIPS)
def test_every_loop_is_found_with_its_trip_count_and_its_parent(trips):
    nest = loop_nest(nested(trips))
    assert [loop.trips for loop in nest.loops] == trips
    assert [loop.parent for loop in nest.loops] == list(range(-1, len(trips) - 1))
    assert [loop.depth for loop in nest.loops] == list(range(len(trips)))


@given(TRIPS)
def test_a_loop_is_entered_as_often_as_the_loops_around_it_run(trips):
    entered = 1.0
    for loop in loop_nest(nested(trips)).loops:
        assert loop.entered == entered
        entered *= loop.trips


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
