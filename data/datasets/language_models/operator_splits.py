"""Splits of timed operators: devices, generations or shapes held out, or few rows known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.columns import Names
from forerun.data.datasets.dataset import Dataset
from forerun.data.lazy import pd
from forerun.data.quality import Quantities, check
from forerun.data.split import HeldOut, Mask, Split

SITE_FOLDS: Final = 5
FEW_ROWS: Final = 50
"""Rows of a device that `few_rows` adds to the rows of other devices."""
SEED: Final = 0


@dataclass(frozen=True)
class OperatorTable:
    """The columns of a table of timed operators that make a query, and those that make a site.

    Attributes:
        name: the table.
        device: column of the device.
        query: columns that together make one query, including the device.
        site: columns of the shape except those that grow with the batch; rows of a site are held
            out together.
        generations: device -> its generation; without one, only single devices are held out.
        few: queries of a device in the support set of `few_rows`.
        time: column of the time.
        unit_ms: milliseconds per unit of that column.
    """

    name: str
    device: str
    query: tuple[str, ...]
    site: tuple[str, ...]
    generations: Mapping[str, str] = field(default_factory=dict)
    few: int = FEW_ROWS
    time: str = "latency_ms"
    unit_ms: float = 1.0

    def splits(self, frame: "pd.DataFrame") -> list[Split]:
        """Splits of the table, n rows; the name of each protocol is followed by the table's name.

        `unseen_device/TABLE/DEVICE` and `unseen_generation/TABLE/GENERATION`: one is held out, the
        others are trained on. `few_rows/TABLE/DEVICE`: the same, but a few random queries of the
        device are training rows. `unseen_site/TABLE/FOLD`: sites are held out on all devices, in
        five folds.
        """
        devices = frame[self.device].astype(str).to_numpy(dtype=np.str_)
        derived: dict[str, Names] = {"site": row_names(frame, self.site)}
        protocols = {f"unseen_device/{self.name}": self.device}
        if self.generations:
            codes, places = np.unique(devices, return_inverse=True)
            named = np.array([self.generations.get(str(code), str(code)) for code in codes])
            derived["generation"] = named[places]
            protocols[f"unseen_generation/{self.name}"] = "generation"
        splits = []
        for protocol, key in protocols.items():
            out = HeldOut(key)
            splits += out.splits(protocol, self.name, frame, groups=derived, query=self.query)
        splits += few_rows(self.name, frame, devices, self.query, self.few)
        sites = HeldOut("site", folds=SITE_FOLDS, salt=self.name, keys=("site",))
        protocol = f"unseen_site/{self.name}"
        splits += sites.splits(protocol, self.name, frame, groups=derived, query=self.query)
        return splits

    def flags(self, frame: "pd.DataFrame") -> "pd.DataFrame":
        """Findings about the table's rows: duplicates and impossible values."""
        values = {"time_ms": self.unit_ms * frame[self.time].to_numpy(dtype=np.float64)}
        for name, column in (("power_w", "power_w"), ("tdp_w", "power_limit_w")):
            if column in frame:
                values[name] = frame[column].to_numpy(dtype=np.float64)
        return check(frame, Quantities(**values), same=(*self.query, self.time))


class TimedOperators(Dataset):
    """A dataset whose declaration names tables of timed operators, and generations of devices."""

    operators: ClassVar[Mapping[str, OperatorTable]]
    generations: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, declared: str = "") -> None:
        """Read the declaration; see `Dataset.__init_subclass__`."""
        super().__init_subclass__(declared=declared)
        facts: dict[str, dict[str, Any]] = dict(getattr(cls, "operators", {}))
        cls.operators = {
            name: OperatorTable(
                **{"name": name, "generations": cls.generations, **declared_table}
                | {key: tuple(declared_table[key]) for key in ("query", "site")}
            )
            for name, declared_table in facts.items()
        }

    def splits(self, bundle: Bundle) -> list[Split]:
        """The declared splits, and `OperatorTable.splits` for each table of the bundle."""
        tables = [table for name, table in self.operators.items() if bundle.has(name)]
        found = [split for table in tables for split in table.splits(bundle.table(table.name))]
        return [*super().splits(bundle), *found]

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """Doubtful rows of the first table that the bundle has."""
        name = next(name for name in self.operators if bundle.has(name))
        return self.operators[name].flags(bundle.table(name))


def few_rows(
    table: str, frame: "pd.DataFrame", group: Names, query: tuple[str, ...], count: int = FEW_ROWS
) -> list[Split]:
    """One split `few_rows/TABLE/GROUP` for each group with more than `count` queries.

    The rows of a group are held out, except those of `count` random queries, which form the support
    set. These and the rows of all other groups are training rows.

    Args:
        table: name of the table.
        frame: the table, n rows.
        group: n values, such as names of devices.
        query: columns that together make one query.
        count: queries in the support set.
    """
    codes = row_codes(frame, query)
    splits = []
    for value in np.unique(group):
        its: Mask = group == value
        queries = np.unique(codes[its])
        if len(queries) <= count:
            continue
        drawn = np.random.default_rng(SEED).choice(queries, count, replace=False)
        known = its & np.isin(codes, drawn)
        name = f"few_rows/{table}/{value}"
        splits.append(Split(name, table, ~its | known, its & ~known, (), query))
    return splits


def row_codes(frame: "pd.DataFrame", columns: Sequence[str]) -> NDArray[np.int64]:
    """A number for each of n rows, equal if all columns are equal; missing values are equal."""
    groups = frame.groupby(list(columns), observed=True, dropna=False, sort=True)
    return np.asarray(groups.ngroup(), dtype=np.int64)


def row_names(frame: "pd.DataFrame", columns: Sequence[str]) -> Names:
    """The values of columns of n rows as text, such as `4096 x 512`, the same in every table."""
    codes = row_codes(frame, columns)
    first = np.unique(codes, return_index=True)[1]
    rows = frame.iloc[first][list(columns)].itertuples(index=False)
    names = [" x ".join(_plain(value) for value in row) for row in rows]
    return np.array(names, dtype=np.str_)[codes]


def _plain(value: object) -> str:
    """A value as text; a whole number looks the same in integer and float columns."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)
