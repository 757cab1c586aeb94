"""Folds keep groups whole, and every row is predicted by a fit without its group."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import LeaveOneGroupOut, PredefinedSplit, cross_val_predict
from sklearn.tree import DecisionTreeRegressor

from forerun.models.conformal import held_out_folds, out_of_fold


@given(st.lists(st.sampled_from("abcdefg"), min_size=2, max_size=80), st.integers(2, 6))
def test_folds_hold_out_every_row_once_and_keep_groups_whole(names, folds):
    groups = np.array(names)
    masks = list(held_out_folds(groups, folds))
    count = len(set(names))
    assert len(masks) == (min(folds, count) if count > 1 else 0)
    for mask in masks:
        assert not set(groups[mask]) & set(groups[~mask])
    if masks:
        assert (np.sum(masks, axis=0) == 1).all()
        sizes = [len(set(groups[mask])) for mask in masks]
        assert max(sizes) - min(sizes) <= 1


def test_by_default_each_group_is_held_out_by_itself_as_scikit_learn_does():
    groups = np.array(["b", "a", "c", "b", "a"])
    wanted = [held for _, held in LeaveOneGroupOut().split(groups, groups=groups)]
    found = [np.flatnonzero(mask) for mask in held_out_folds(groups)]
    assert [held.tolist() for held in found] == [held.tolist() for held in wanted]


def test_the_seed_assigns_groups_to_folds_whatever_the_order_of_the_rows():
    groups = np.array([f"family {n}" for n in range(20)])
    one, again, other = (
        [set(names[mask]) for mask in held_out_folds(names, 4, seed)]
        for names, seed in ((groups, 1), (np.repeat(groups[::-1], 3), 1), (groups, 2))
    )
    assert one == again
    assert one != other


def test_nothing_is_held_out_of_a_single_group():
    groups = np.array(["a", "a"])
    assert list(held_out_folds(groups, 3)) == []
    assert np.isnan(out_of_fold(groups, lambda held: np.zeros(held.sum()), columns=2)).all()


def test_predictions_are_those_of_scikit_learns_cross_validation():
    random = np.random.default_rng(0)
    rows, target = random.normal(size=(60, 3)), random.normal(size=60)
    groups = random.integers(0, 9, 60).astype(str)
    tree = DecisionTreeRegressor(random_state=0)

    def predict(held):
        return tree.fit(rows[~held], target[~held]).predict(rows[held])

    [found] = out_of_fold(groups, predict, folds=4, seed=3)
    fold = np.argmax(list(held_out_folds(groups, 4, 3)), axis=0)
    wanted = cross_val_predict(tree, rows, target, cv=PredefinedSplit(fold))
    np.testing.assert_array_equal(found, wanted)


def test_a_group_without_a_fit_has_no_prediction():
    groups = np.array(["a", "b", "b"])

    def predict(held):
        return np.nan if held[0] else (np.ones(2), np.full(2, 5.0))

    found = out_of_fold(groups, predict, columns=2)
    assert np.isnan(found[:, 0]).all()
    assert found[:, 1:].tolist() == [[1.0, 1.0], [5.0, 5.0]]
