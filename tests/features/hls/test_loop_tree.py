"""Features of every loop of a design agree with those of the whole design."""

import numpy as np
import pytest

from forerun.data.workload import Design
from forerun.features.hls.directives import (
    DESIGN_FEATURES,
    TIMINGS,
    cycles_bound,
    design_row,
    directed_loops,
)
from forerun.features.hls.loop_tree import LOOP_FEATURES, log_cycles, loop_tree
from forerun.features.hls.program_graph import loop_nest
from tests.programs import nested

DIRECTIVES = [
    {"__PARA__L1": "4", "__PARA__L0": "3", "__PIPE__L0": ""},
    {"__PARA__L1": "1", "__PARA__L0": "2", "__PIPE__L0": "flatten", "__TILE__L0": "4"},
    {"__PARA__L0": "5", "__PIPE__L0": "off"},
]


def design(trips, directives) -> Design:
    return Design(nested(trips), tuple(sorted(directives.items())))


@pytest.mark.parametrize("directives", DIRECTIVES)
@pytest.mark.parametrize("trips", [[16, 32], [8, 16, 32]])
def test_bounds_in_one_pass_are_those_of_each_loop(trips, directives):
    one = design(trips, directives)
    nest, loops = loop_nest(one.program), directed_loops(one)
    found = log_cycles(loops, TIMINGS.values())
    for own, timing in zip(found, TIMINGS.values(), strict=True):
        wanted = [np.log2(cycles_bound(nest, loops, at, timing)) for at in range(len(loops))]
        assert own == pytest.approx(wanted)


@pytest.mark.parametrize("directives", DIRECTIVES)
def test_the_innermost_loop_has_the_features_of_the_design(directives):
    one = design([16, 32], directives)
    tree, row = loop_tree(one), dict(zip(DESIGN_FEATURES, design_row(one), strict=True))
    inner = dict(zip(LOOP_FEATURES, tree.features[-1], strict=True))
    assert tree.parents.T.tolist() == tree.nested[::-1].T.tolist() == [[0, 1]]
    assert inner["dsp_near"] == pytest.approx(row["dsp_near"])
    assert inner["all_copies"] == pytest.approx(row["copies_sum"])
    assert inner["all_steps"] == pytest.approx(row["log_steps"])
    assert np.isfinite(tree.features).all()


def test_directives_change_no_feature_of_the_program():
    trees = [loop_tree(design([16, 32], directives)) for directives in DIRECTIVES]
    fixed = LOOP_FEATURES.index("copies")
    assert all((tree.features[:, :fixed] == trees[0].features[:, :fixed]).all() for tree in trees)


def test_a_loop_has_all_loops_inside_and_around_it_at_any_distance():
    tree = loop_tree(design([8, 16, 32], {}))
    assert tree.parents.T.tolist() == [[0, 1], [1, 2]]
    assert tree.nested.T.tolist() == [[1, 0], [2, 1], [2, 0]]
