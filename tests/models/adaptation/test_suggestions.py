"""Farthest-point sampling: each point is the farthest from those chosen and measured before it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from forerun.models.adaptation.support_set import farthest_points

SEEDS = st.integers(0, 2**16)
COUNTS = st.integers(1, 30)


@given(SEEDS, COUNTS, COUNTS, st.booleans())
def test_each_point_is_the_farthest_from_all_before_it(seed, rows, count, is_measured):
    random = np.random.default_rng(seed)
    points, measured = random.normal(size=(rows, 2)), random.normal(size=(3, 2))
    if is_measured:
        chosen = farthest_points(points, count, measured=measured)
    else:
        chosen = farthest_points(points, count, [0], random=random)
    assert len(set(chosen)) == len(chosen) == min(rows, count)
    for step in range(0 if is_measured else 1, len(chosen)):
        before = points[chosen[:step]]
        taken = np.vstack([measured, before]) if is_measured else before
        nearest = cdist(points, taken).min(axis=1)
        assert nearest[chosen[step]] == pytest.approx(nearest.max(), abs=1e-6)


def test_equal_points_are_all_chosen_once():
    assert sorted(farthest_points(np.ones((4, 2)), 4, [2])) == [0, 1, 2, 3]


def test_ties_are_broken_at_random_where_a_generator_is_given():
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    seconds = {
        farthest_points(corners, 2, [0], random=np.random.default_rng(seed))[1]
        for seed in range(40)
    }
    assert seconds == {1, 2, 3, 4}
    assert farthest_points(corners, 2, [0])[1] == 1
