"""About a quarter of the workloads is held out, and stays held out."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forerun.training.retraining.comparison import HELD_OUT_SHARE, held_out


@given(st.lists(st.text(max_size=20)), st.lists(st.text(max_size=20)))
def test_more_measurements_never_move_a_workload_across_the_split(before, more):
    assert held_out([*before, *more])[: len(before)].tolist() == held_out(before).tolist()


def test_rows_of_a_workload_are_on_one_side():
    assert len(set(held_out(["a"] * 50).tolist())) == 1


def test_a_quarter_of_many_workloads_is_held_out():
    held = held_out([f"workload {number}" for number in range(4_000)])
    assert abs(held.mean() - HELD_OUT_SHARE) < 4 * np.sqrt(HELD_OUT_SHARE * 0.75 / 4_000)


def test_the_side_depends_on_the_hash():
    """The SHA-256 hashes begin with ca, 3e, 2e, 18, 3f79, 25, cd and aa."""
    assert held_out(list("abcdefgh")).tolist() == [
        False,
        True,
        True,
        True,
        True,
        True,
        False,
        False,
    ]
