"""Tables of n rows that a dataclass holds column by column."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
"""One number for each of n rows."""
Matrix = NDArray[np.float64]
"""Several numbers for each of n rows."""
Mask = NDArray[np.bool_]
"""Whether each of n rows is selected."""
Index = NDArray[np.intp]
"""Positions of rows, or codes of groups."""
Labels = NDArray[np.str_]
"""Name of a group for each of n rows."""
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Columns:
    """A table: fields that are arrays, sequences, tables or mappings to these have n rows.

    All other fields are shared.
    """

    def take(self, rows: Mask | Index) -> Self:
        """The rows at these positions, or where the mask is True."""
        return replace(self, **{f.name: _taken(getattr(self, f.name), rows) for f in fields(self)})

    @classmethod
    def concatenate(cls, tables: Sequence[Self]) -> Self:
        """All rows of several tables whose fields are arrays, one table after another."""
        names = [f.name for f in fields(cls)]
        return cls(**{n: np.concatenate([getattr(t, n) for t in tables]) for n in names})


def groups_of(keys: Iterable[Key]) -> dict[Key, list[int]]:
    """Each distinct key -> positions of the rows with that key, keys in order of appearance."""
    groups: dict[Key, list[int]] = {}
    for row, key in enumerate(keys):
        groups.setdefault(key, []).append(row)
    return groups


def _taken(column: Any, rows: Mask | Index) -> Any:
    if isinstance(column, np.ndarray):
        return column[rows]
    if isinstance(column, Columns):
        return column.take(rows)
    if isinstance(column, Mapping):
        return {name: _taken(part, rows) for name, part in column.items()}
    if isinstance(column, list | tuple):
        return [column[row] for row in np.arange(len(column))[rows].tolist()]
    return column
