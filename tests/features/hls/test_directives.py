"""What directives make of loops: copies, steps, bounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.workload import Design
from forerun.features.hls.directives import (
    DESIGN_FEATURES,
    PLACE_COLUMNS,
    coordinates,
    design_row,
    directed_loops,
    log_share,
)
from tests.programs import nested

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


def test_copies_and_pipelines_shorten_the_bound_on_cycles():
    plain, parallel, flat = (
        feature(d, "log_cycles")
        for d in (
            design(PIPE__L0="off"),
            design(PIPE__L0="off", PARA__L0=8),
            design(PIPE__L0="flatten"),
        )
    )
    assert flat < parallel < plain


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
