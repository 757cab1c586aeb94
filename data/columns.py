"""Types of arrays with n rows, tables of them, and grouping of rows by key."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
"""Numbers, mostly of shape (n,)."""
Matrix = NDArray[np.float64]
"""Numbers of shape (n, columns)."""
Mask = NDArray[np.bool_]
"""A flag for each row, mostly of shape (n,)."""
Names = NDArray[np.str_]
"""Texts, such as labels of strata or groups, mostly of shape (n,)."""
Positions = NDArray[np.intp]
"""Positions of rows, or codes of their groups."""
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Columns:
    """A table: fields that are arrays, sequences, tables, or mappings to these have n rows.

    All other fields apply to the whole table.
    """

    def take(self, rows: Mask | Positions | slice) -> Self:
        """The rows at these positions, or where the mask is True; a slice gives views of arrays."""
        return replace(self, **{f.name: _taken(getattr(self, f.name), rows) for f in fields(self)})

    @classmethod
    def concatenate(cls, tables: Sequence[Self]) -> Self:
        """All rows of several tables, one table after another."""
        return tables[0] if len(tables) == 1 else joined(tables, np.concatenate)


def joined(parts: Sequence[Any], join: Callable[[Sequence[Column]], Column]) -> Any:
    """Arrays, tables of them, or mappings to them, joined column by column."""
    first = parts[0]
    if isinstance(first, Columns):
        names = [f.name for f in fields(first)]
        return replace(
            first, **{n: joined([getattr(part, n) for part in parts], join) for n in names}
        )
    if isinstance(first, Mapping):
        return {n: joined([part[n] for part in parts], join) for n in first}
    return join(parts)


def groups_of(keys: Iterable[Key]) -> dict[Key, list[int]]:
    """Each distinct key -> positions of the rows with that key, keys in order of appearance."""
    groups: dict[Key, list[int]] = {}
    for row, key in enumerate(keys):
        groups.setdefault(key, []).append(row)
    return groups


def rows_by(keys: Iterable[Key]) -> dict[Key, Positions]:
    """Each key, in ascending order -> positions of its rows, in ascending order.

    Args:
        keys: n keys, such as labels or spec sheets.
    """
    rows: dict[Any, list[int]] = groups_of(keys)
    return {key: np.array(rows[key], dtype=np.intp) for key in sorted(rows)}


def finite_log(values: Column) -> Column:
    """Natural logarithm of n values, shape (n,); NaN where it is undefined."""
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(values)
    return np.where(np.isfinite(logs), logs, np.nan)


def _taken(column: Any, rows: Mask | Positions | slice) -> Any:
    if isinstance(column, np.ndarray):
        return column[rows]
    if isinstance(column, Columns):
        return column.take(rows)
    if isinstance(column, Mapping):
        return {name: _taken(part, rows) for name, part in column.items()}
    if isinstance(column, list | tuple):
        if isinstance(rows, slice):
            return list(column[rows])
        return [column[row] for row in np.arange(len(column))[rows].tolist()]
    return column
