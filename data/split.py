"""Training rows and held-out rows of a table, under a named protocol."""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.data.lazy import pd

Mask = NDArray[np.bool_]
_SEPARATORS = re.compile(r"[ _]+")


class LeakedRows(AssertionError):
    """Held-out rows of a split leak into training: a bug of the split, never of the caller."""


@dataclass(frozen=True)
class Split:
    """Training rows of one table, and held-out rows on which predictions are evaluated.

    Attributes:
        protocol: name, such as `unseen_device` or `unseen_family/3`.
        table: table of the bundle whose rows the masks are for.
        train: n flags: rows that a predictor may be fitted on.
        held_out: n flags: rows that are scored.
        disjoint_keys: columns whose values training rows and held-out rows must not share.
        query_columns: columns that together make one query; a held-out query must not occur among
            the training rows, whatever its row.
        derived: n values by name, for keys that are not columns of the table.
    """

    protocol: str
    table: str
    train: Mask
    held_out: Mask
    disjoint_keys: tuple[str, ...] = ()
    query_columns: tuple[str, ...] = ()
    derived: Mapping[str, NDArray[np.str_]] = field(default_factory=dict)

    def check(self, frame: "pd.DataFrame") -> None:
        """Check that no held-out row leaks into training, not even under another spelling.

        Args:
            frame: the table, in the order of the masks.

        Raises:
            LeakedRows: the masks do not fit the table, a held-out row is in training, a key's
                value is in both, or one query is in both.
        """
        if not len(self.train) == len(self.held_out) == len(frame):
            raise LeakedRows(f"{self.protocol}: masks do not fit the {len(frame)} rows")
        both = np.flatnonzero(self.train & self.held_out)
        if len(both):
            raise LeakedRows(
                f"{self.protocol}: {len(both)} held-out rows are trained on, first row {both[0]}"
            )
        for key in self.disjoint_keys:
            values = self.key_values(frame, key)
            trained, held_out = (
                canonical(np.unique(values[mask])) for mask in (self.train, self.held_out)
            )
            shared = np.intersect1d(trained, held_out)
            if len(shared):
                raise LeakedRows(
                    f"{self.protocol}: {key} {str(shared[0])!r} is trained on and held out"
                )
        if self.query_columns:
            queries = _row_hashes(frame, self.query_columns)
            repeated = np.isin(queries[self.held_out], queries[self.train])
            if repeated.any():
                row = np.flatnonzero(self.held_out)[repeated][0]
                count = repeated.sum()
                raise LeakedRows(
                    f"{self.protocol}: {count} held-out queries are trained on, first row {row}"
                )

    def key_values(self, frame: "pd.DataFrame", key: str) -> NDArray[np.str_]:
        """The n values of a grouping key, as text."""
        values = self.derived[key] if key in self.derived else frame[key].astype(str).to_numpy()
        return np.asarray(values, dtype=np.str_)


def canonical(values: Iterable[str]) -> NDArray[np.str_]:
    """Each of n names in lower case, with `-` for spaces and underscores."""
    names = [str(value) for value in values]
    plain = {name: _SEPARATORS.sub("-", name.casefold().strip()) for name in set(names)}
    return np.array([plain[name] for name in names], dtype=np.str_)


def fold_of(group: str, folds: int, salt: str = "") -> int:
    """Fold of a group, from its name alone, so that it is the same in every bundle."""
    digest = hashlib.blake2b(f"{salt}:{group}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % folds


def folds_of(groups: Iterable[str], folds: int, salt: str = "") -> NDArray[np.int64]:
    """Fold of each row's group; all rows of a group are in the same fold."""
    names = [str(group) for group in groups]
    fold = {name: fold_of(name, folds, salt) for name in set(names)}
    return np.array([fold[name] for name in names], dtype=np.int64)


@dataclass(frozen=True)
class HeldOut:
    """What a protocol holds out of the rows of a table.

    Attributes:
        by: column or group whose values are held out, or several columns, whose values are joined
            into one text; empty for a single split, given by `held_out` and `train`.
        called: name of such joined values among the keys.
        folds: number of folds that values are assigned to; 0 to hold out each value separately.
        salt: salt of the hash that assigns folds.
        fold: the only fold that is held out; None for each in turn.
        train, held_out: name of the flags of rows that may be trained on or held out; if empty, all
            rows that take part.
        always: name of the flags of rows that are trained on in every split; empty for none.
        keys: keys whose values must not be on both sides; by default `by`, or none with folds.
        query: columns that together make one query; those of the dataset when None.
    """

    by: str | Sequence[str] = ""
    called: str = ""
    folds: int = 0
    salt: str = ""
    fold: int | None = None
    train: str = ""
    held_out: str = ""
    always: str = ""
    keys: Sequence[str] | None = None
    query: Sequence[str] | None = None

    def splits(
        self,
        protocol: str,
        table: str,
        frame: "pd.DataFrame",
        flags: Mapping[str, Mask] | None = None,
        groups: Mapping[str, NDArray[np.str_]] | None = None,
        query: Sequence[str] = (),
    ) -> list[Split]:
        """One split `PROTOCOL/VALUE` for each value or fold; `PROTOCOL` if there is only one.

        Args:
            protocol: name of the protocol.
            table: name of the table.
            frame: the table, n rows.
            flags: name -> n flags; the empty name marks the rows that take part.
            groups: name -> n values, for keys that are not columns.
            query: columns that together make one query of the dataset.
        """
        found = {"": np.ones(len(frame), dtype=np.bool_), **(flags or {})}
        train, held_out = found[self.train], found[self.held_out]
        always = found[self.always] if self.always else np.zeros(len(frame), dtype=np.bool_)
        name = self.called or (self.by if isinstance(self.by, str) else "")
        usual = () if self.folds or not name else (name,)
        keys = tuple(usual if self.keys is None else self.keys)
        asked = tuple(query if self.query is None else self.query)
        known = dict(groups or {})
        if not self.by:
            return [Split(protocol, table, train, held_out, keys, asked, known)]
        values = self._values(frame, known)
        if name not in frame:
            known[name] = np.asarray(values, dtype=np.str_)
        if self.folds:
            values = folds_of(values, self.folds, self.salt)
        wanted = np.unique(values[held_out]) if self.fold is None else [self.fold]
        splits = []
        for value in wanted:
            out = values == value
            label = protocol if self.fold is not None else f"{protocol}/{value}"
            masks = ((train & ~out) | always, held_out & out)
            splits.append(Split(label, table, *masks, keys, asked, known))
        return splits

    def _values(
        self, frame: "pd.DataFrame", groups: Mapping[str, NDArray[np.str_]]
    ) -> NDArray[Any]:
        """The value of each of n rows; whole numbers stay numbers, so that they sort as such."""
        if not isinstance(self.by, str):
            texts = (frame[name].astype(str) for name in self.by)
            return reduce(lambda joined, text: joined + " " + text, texts).to_numpy()
        if self.by in groups:
            return groups[self.by]
        column = frame[self.by]
        return column.to_numpy() if column.dtype.kind == "i" else column.astype(str).to_numpy()


def is_one_of(column: "pd.Series[str]", values: Collection[str]) -> Mask:
    """For each of n rows, whether its value is one of `values`."""
    return np.asarray(column.astype(str).isin(list(values)), dtype=np.bool_)


def same_values(column: "pd.Series[Any]") -> NDArray[np.str_]:
    """A text for each of n values, equal for numbers within 1e-6 and for spellings of a name.

    It is empty for a missing value.
    """
    codes, different = pd.factorize(column, use_na_sentinel=True)
    return np.array([*map(_plain, different), ""], dtype=np.str_)[codes]


def _plain(value: object) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    return str(value) if isinstance(value, int | np.integer) else str(canonical([str(value)])[0])


def _row_hashes(frame: "pd.DataFrame", columns: Collection[str]) -> NDArray[np.uint64]:
    """A hash of each of n rows, equal if all `same_values` are equal."""
    parts = pd.DataFrame({name: same_values(frame[name]) for name in columns})
    hashes = pd.util.hash_pandas_object(parts, index=False)
    return np.asarray(hashes, dtype=np.uint64)
