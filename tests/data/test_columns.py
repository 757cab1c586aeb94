"""Tables of columns, rows that have a key in common, and logarithms where there are some."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from forerun.data.columns import Columns, finite_log, groups_of, rows_by


@dataclass(frozen=True)
class Inner(Columns):
    number: np.ndarray


@dataclass(frozen=True)
class Table(Columns):
    kind: str
    matrix: np.ndarray
    names: tuple[str, ...]
    inner: Inner
    numbers: Mapping[str, np.ndarray]


TABLE = Table(
    "kind",
    np.arange(6).reshape(3, 2),
    ("a", "b", "c"),
    Inner(np.arange(3)),
    {"squares": np.arange(3) ** 2},
)


def test_a_mask_positions_and_a_slice_take_the_same_rows_of_every_column():
    for rows in (np.array([True, False, True]), np.array([0, 2]), slice(0, 3, 2)):
        found = TABLE.take(rows)
        assert found.matrix.tolist() == [[0, 1], [4, 5]]
        assert list(found.names) == ["a", "c"]
        assert found.inner.number.tolist() == [0, 2]
        assert found.numbers["squares"].tolist() == [0, 4]


def test_what_is_no_column_is_kept():
    assert TABLE.take(np.array([1])).kind == "kind"


def test_positions_may_repeat_and_change_the_order():
    assert TABLE.take(np.array([2, 0, 2])).inner.number.tolist() == [2, 0, 2]


def test_tables_are_joined_in_their_order():
    joined = Inner.concatenate([Inner(np.array([2, 1])), Inner(np.array([5]))])
    assert joined.number.tolist() == [2, 1, 5]


def test_groups_are_in_order_of_appearance_and_hold_every_row_once():
    assert list(groups_of("banana").items()) == [("b", [0]), ("a", [1, 3, 5]), ("n", [2, 4])]
    assert groups_of([]) == {}


def test_keys_rise_and_so_do_the_rows_of_each():
    rows = rows_by(["b", "a", "b"])
    assert list(rows) == ["a", "b"]
    assert [own.tolist() for own in rows.values()] == [[1], [0, 2]]
    assert all(own.dtype == np.intp for own in rows.values())


def test_nothing_has_no_keys():
    assert rows_by([]) == {}


def test_what_has_no_logarithm_is_nan():
    logs = finite_log(np.array([0.5, 0.0, -1.0, np.inf, np.nan]))
    assert logs[0] == pytest.approx(np.log(0.5))
    assert np.isnan(logs[1:]).all()
