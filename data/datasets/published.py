"""What datasets of published tables have in common: families by name, and rows left out."""

import re
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def family_of(model: str, patterns: Iterable[tuple[str, str]]) -> str:
    """Architecture family of a published model.

    Args:
        model: as it is printed.
        patterns: (family, regular expression of the start of its models' names), the first match
            counts; otherwise the family is the leading letters of the name.
    """
    for name, pattern in patterns:
        if re.match(pattern, model):
            return name
    letters = re.match(r"[a-z]+", model.lower())
    return letters[0] if letters else model.lower()


def first_reasons(rules: Sequence[tuple[str, ArrayLike]], rows: int) -> NDArray[np.str_]:
    """The first reason that holds for each of n rows; empty where none does.

    Args:
        rules: (reason, n flags).
        rows: n.
    """
    found = np.full(rows, "", dtype="<U64")
    for why, where in rules:
        found[np.asarray(where, dtype=np.bool_) & (found == "")] = why
    return found
