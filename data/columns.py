"""Tables of n rows that a dataclass holds column by column."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Columns:
    """A table: fields that are arrays, sequences or tables have n rows, all others are shared."""

    def take(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> Self:
        """The rows at these positions, or where the mask is True."""
        return replace(self, **{f.name: _taken(getattr(self, f.name), rows) for f in fields(self)})

    @classmethod
    def concatenate(cls, tables: Sequence[Self]) -> Self:
        """All rows of several tables whose fields are arrays, one table after another."""
        names = [f.name for f in fields(cls)]
        return cls(**{n: np.concatenate([getattr(t, n) for t in tables]) for n in names})


def _taken(column: Any, rows: NDArray[np.bool_] | NDArray[np.intp]) -> Any:
    if isinstance(column, np.ndarray):
        return column[rows]
    if isinstance(column, Columns):
        return column.take(rows)
    if isinstance(column, list | tuple):
        return [column[row] for row in np.arange(len(column))[rows].tolist()]
    return column
