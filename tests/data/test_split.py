"""A split fails its check when held-out rows leak into training."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.split import (
    HeldOut,
    LeakedRows,
    Split,
    fold_of,
    folds_of,
    is_one_of,
)

FRAME = pd.DataFrame(
    {"device": ["a", "a", "b", "b"], "op": ["x", "y", "x", "z"], "size": [1, None, 1, 2]}
)
TRAIN = np.array([True, True, False, False])
SOUND = Split("p", "t", TRAIN, ~TRAIN, ("device",), ("device", "op", "size"))


def test_a_sound_split_passes():
    SOUND.check(FRAME)


def test_masks_of_another_length_fail():
    with pytest.raises(LeakedRows, match="do not fit"):
        SOUND.check(FRAME.head(3))


def test_a_row_in_both_masks_fails():
    with pytest.raises(LeakedRows, match="1 held-out rows are trained on, first row 1"):
        Split("p", "t", TRAIN, np.array([False, True, True, True])).check(FRAME)


def test_a_key_in_both_fails():
    with pytest.raises(LeakedRows, match="op 'x' is trained on and held out"):
        Split("p", "t", TRAIN, ~TRAIN, ("op",)).check(FRAME)


def test_a_derived_key_in_both_fails():
    derived = {"vendor": np.array(["v"] * 4)}
    with pytest.raises(LeakedRows, match="vendor 'v' is trained on and held out"):
        Split("p", "t", TRAIN, ~TRAIN, ("vendor",), (), derived).check(FRAME)


def test_the_same_question_in_both_fails_whatever_its_answer():
    with pytest.raises(LeakedRows, match="1 held-out queries are trained on, first row 2"):
        Split("p", "t", TRAIN, ~TRAIN, (), ("op", "size")).check(FRAME)


def test_missing_values_are_equal_in_a_question():
    frame = FRAME.assign(op="x", size=[1, None, None, 2])
    with pytest.raises(LeakedRows, match="first row 2"):
        Split("p", "t", TRAIN, ~TRAIN, (), ("op", "size")).check(frame)


def test_a_leak_is_not_an_input_error():
    assert issubclass(LeakedRows, AssertionError)


@given(st.lists(st.text(max_size=5), max_size=30), st.integers(1, 9))
def test_the_fold_of_a_group_does_not_depend_on_other_groups(groups, folds):
    fold = folds_of(groups, folds, "salt")
    assert fold.tolist() == [fold_of(g, folds, "salt") for g in groups]
    assert ((fold >= 0) & (fold < folds)).all()


def test_folds_are_of_about_one_size():
    sizes = np.bincount(folds_of(map(str, range(5000)), 5), minlength=5)
    assert sizes.min() > 900


def test_every_kept_row_is_held_out_once_and_no_other():
    frame = pd.DataFrame({"gpu": ["a", "a", "b", "c", "d"]})
    kept = np.array([True, True, True, True, False])
    splits = HeldOut("gpu", folds=3, salt="s").splits("p", "t", frame, {"": kept})
    folds = sorted(set(folds_of(frame["gpu"][kept], 3, "s")))
    assert [s.protocol for s in splits] == [f"p/{number}" for number in folds]
    assert np.sum([s.held_out for s in splits], axis=0).tolist() == kept.astype(int).tolist()
    for split in splits:
        assert ((split.train | split.held_out) == kept).all()


def test_is_one_of_takes_categories():
    column = pd.Series(["a", "b", None]).astype("category")
    assert is_one_of(column, ("a",)).tolist() == [True, False, False]


def test_each_value_is_held_out_once_while_only_the_others_train():
    frame = pd.DataFrame({"gpu": ["a", "b", "a", "c"]})
    may_train, may_be_held_out = np.array([1, 1, 1, 0], bool), np.array([1, 0, 1, 1], bool)
    names = {"size": np.array(["x", "x", "y", "y"])}
    flags = {"train": may_train, "held out": may_be_held_out}
    splits = [
        split
        for protocol, key in {"unseen_gpu": "gpu", "unseen_size": "size"}.items()
        for split in HeldOut(key, train="train", held_out="held out").splits(
            protocol, "t", frame, flags, names if key == "size" else {}, ("gpu",)
        )
    ]
    found = {s.protocol: (s.train.tolist(), s.held_out.tolist()) for s in splits}
    assert found == {
        "unseen_gpu/a": ([False, True, False, False], [True, False, True, False]),
        "unseen_gpu/c": ([True, True, True, False], [False, False, False, True]),
        "unseen_size/x": ([False, False, True, False], [True, False, False, False]),
        "unseen_size/y": ([True, True, False, False], [False, False, True, True]),
    }
    assert [list(s.derived) for s in splits] == [[], [], ["size"], ["size"]]
    assert {(s.table, s.query_columns) for s in splits} == {("t", ("gpu",))}


def test_one_fold_of_joined_values_is_held_out_and_some_rows_always_train():
    frame = pd.DataFrame({"m": [1, 1, 2, 3, 2], "n": [7, 7, 7, 7, 7]})
    always = np.array([False, True, False, False, True])
    flags = {"always": always, "own": ~always}
    rule = HeldOut(("m", "n"), "site", 2, "s", 0, held_out="own", always="always", keys=("site",))
    (split,) = rule.splits("held_out_sites", "t", frame, flags)
    assert split.protocol == "held_out_sites"
    assert split.derived["site"].tolist() == ["1 7", "1 7", "2 7", "3 7", "2 7"]
    out = folds_of(split.derived["site"], 2, "s") == 0
    assert split.held_out.tolist() == (out & ~always).tolist()
    assert split.train.tolist() == (~out | always).tolist()
