"""Types of arrays with n rows, whose shapes docstrings give, and rows that have a key in common."""

from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
"""Numbers, mostly of shape (n,)."""
Matrix = NDArray[np.float64]
"""Numbers of shape (n, columns)."""
Mask = NDArray[np.bool_]
"""Whether something holds for each row, mostly of shape (n,)."""
Names = NDArray[np.str_]
"""Texts: labels of strata or groups, mostly of shape (n,)."""
Positions = NDArray[np.intp]
"""Positions of rows, or codes of their groups."""
T = TypeVar("T")


def rows_by(keys: Iterable[T]) -> dict[T, Positions]:
    """Each key, in rising order -> positions of its rows, in rising order.

    Args:
        keys: n keys, such as labels or spec sheets.
    """
    rows: dict[Any, list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    return {key: np.array(rows[key], dtype=np.intp) for key in sorted(rows)}


def finite_log(values: Column) -> Column:
    """Natural logarithm of n values, shape (n,); NaN where there is none."""
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(values)
    return np.where(np.isfinite(logs), logs, np.nan)
