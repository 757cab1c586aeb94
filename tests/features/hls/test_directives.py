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
