"""A table of columns: rows are taken from every column, and tables are joined column by column."""

from dataclasses import dataclass

import numpy as np

from forerun.data.columns import Columns


@dataclass(frozen=True)
class Inner(Columns):
    number: np.ndarray


@dataclass(frozen=True)
class Table(Columns):
    kind: str
    matrix: np.ndarray
    names: tuple[str, ...]
    inner: Inner


TABLE = Table("kind", np.arange(6).reshape(3, 2), ("a", "b", "c"), Inner(np.arange(3)))


def test_a_mask_and_positions_take_the_same_rows_of_every_column():
    for rows in (np.array([True, False, True]), np.array([0, 2])):
        found = TABLE.take(rows)
        assert found.matrix.tolist() == [[0, 1], [4, 5]]
        assert list(found.names) == ["a", "c"]
        assert found.inner.number.tolist() == [0, 2]


def test_what_is_no_column_is_kept():
    assert TABLE.take(np.array([1])).kind == "kind"


def test_positions_may_repeat_and_change_the_order():
    assert TABLE.take(np.array([2, 0, 2])).inner.number.tolist() == [2, 0, 2]


def test_tables_are_joined_in_their_order():
    joined = Inner.concatenate([Inner(np.array([2, 1])), Inner(np.array([5]))])
    assert joined.number.tolist() == [2, 1, 5]
