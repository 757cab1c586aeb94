"""Which rows may teach and which are judged, under a named protocol."""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

Mask = NDArray[np.bool_]


class LeakedRows(AssertionError):
    """A split lets training see what it judges: our fault, never the asker's."""


@dataclass(frozen=True)
class Split:
    """Rows of one table that may teach, and rows that are judged.

    Attributes:
        protocol: name, such as `unseen_device` or `unseen_family/3`.
        table: table of the bundle whose rows the masks are for.
        train: n flags, rows that may be fitted on.
        judged: n flags, rows that are scored.
        disjoint_keys: columns whose values train and judged rows must not share.
        query_columns: columns that together make one question; a question that is judged must not
            stand in training, whatever its row.
        derived: n values of keys that are no column of the table, by name.
    """

    protocol: str
    table: str
    train: Mask
    judged: Mask
    disjoint_keys: tuple[str, ...] = ()
    query_columns: tuple[str, ...] = ()
    derived: Mapping[str, NDArray[np.str_]] = field(default_factory=dict)

    def check(self, frame: "pd.DataFrame") -> None:
        """Check that nothing judged can be learnt by heart.

        Args:
            frame: the table, in the order of the masks.

        Raises:
            LeakedRows: the masks do not fit the table, a judged row is in training, a key's value
                is in both, or one question is in both.
        """
        if not len(self.train) == len(self.judged) == len(frame):
            raise LeakedRows(f"{self.protocol}: masks do not fit the {len(frame)} rows")
        both = np.flatnonzero(self.train & self.judged)
        if len(both):
            raise LeakedRows(f"{self.protocol}: {len(both)} judged rows teach, first row {both[0]}")
        for key in self.disjoint_keys:
            values = self.key_values(frame, key)
            shared = np.intersect1d(values[self.train], values[self.judged])
            if len(shared):
                raise LeakedRows(f"{self.protocol}: {key} {str(shared[0])!r} is taught and judged")
        if self.query_columns:
            asked = _row_hashes(frame, self.query_columns)
            repeated = np.isin(asked[self.judged], asked[self.train])
            if repeated.any():
                row = np.flatnonzero(self.judged)[repeated][0]
                asked_twice = f"{repeated.sum()} judged questions also teach, first row {row}"
                raise LeakedRows(f"{self.protocol}: {asked_twice}")

    def key_values(self, frame: "pd.DataFrame", key: str) -> NDArray[np.str_]:
        """The n values of a grouping key, as text."""
        values = self.derived[key] if key in self.derived else frame[key].astype(str).to_numpy()
        return np.asarray(values, dtype=np.str_)


def fold_of(group: str, folds: int, salt: str = "") -> int:
    """Fold of a group, from its name alone: the same in every bundle that holds the group."""
    digest = hashlib.blake2b(f"{salt}:{group}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % folds


def folds_of(groups: Iterable[str], folds: int, salt: str = "") -> NDArray[np.int64]:
    """Fold of each row's group; rows of one group are in one fold."""
    names = [str(group) for group in groups]
    fold = {name: fold_of(name, folds, salt) for name in set(names)}
    return np.array([fold[name] for name in names], dtype=np.int64)


def leave_folds_out(
    protocol: str, fold: NDArray[np.int64], kept: Mask, make: Callable[[str, Mask, Mask], Split]
) -> list[Split]:
    """One split a fold: its rows are judged, those of the other folds teach.

    Args:
        protocol: name; the fold's number is appended.
        fold: fold of each of n rows.
        kept: n flags, rows that take part.
        make: from protocol, train and judged to a split.
    """
    splits = []
    for number in np.unique(fold[kept]):
        mine = fold == number
        splits.append(make(f"{protocol}/{number}", kept & ~mine, kept & mine))
    return splits


def is_one_of(column: "pd.Series[str]", values: Collection[str]) -> Mask:
    """Flag of each of n rows: its value is one of these."""
    return np.asarray(column.astype(str).isin(list(values)), dtype=np.bool_)


def _row_hashes(frame: "pd.DataFrame", columns: Collection[str]) -> NDArray[np.uint64]:
    import pandas as pd

    parts = frame[list(columns)].copy()
    for name in parts:
        codes, _ = pd.factorize(parts[name], use_na_sentinel=True)
        parts[name] = codes
    hashes = pd.util.hash_pandas_object(parts, index=False)
    return np.asarray(hashes, dtype=np.uint64)
