"""The base class of datasets: source, tables, splits, and how a dataset is downloaded.

Each dataset is declared in a file NAME.toml next to its class: title, licence, citation, published
results, origin, and the rule of each column (`forerun.data.schema.declared_schema`).
"""

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forerun.data.bundle import Bundle, bundle_folder, home
from forerun.data.columns import Mask, Names
from forerun.data.errors import BadTable
from forerun.data.facts import facts_of
from forerun.data.lazy import pa, pd
from forerun.data.quality import Quantities, check
from forerun.data.schema import check_table, declared_schema
from forerun.data.split import HeldOut, Split
from forerun.data.upstream.downloads import RawFiles, Upstream, together

_READ = ("time", "rate", "power")
"""Entries of `Dataset.checked` that name columns."""


class Dataset(ABC):
    """A dataset: the source of its rows, its tables, and its protocols. One class, one file.

    Attributes:
        name: short name, as in `forerun data pull NAME`.
        title: one line.
        licence: licence of the upstream files.
        citation: paper or repository.
        published: what others report for it, and under which protocol.
        upstream: repository, commit and files.
        further: additional repositories, whose files are fetched with those of the first.
        csv_tables: tables that a bundle holds as CSV; the others are Parquet.
        columns_of: table -> rule -> columns that it applies to.
        query: columns that together make one query; empty if the splits only have keys.
        checked: what `flags` checks: the `table`, its column `time` (in units of `unit_ms`) or
            `rate` (per second), and `power`; `same`: result columns that are equal in duplicates.
        held_out: table -> protocol -> key whose values are held out in turn, a column or one of
            `groups`; or the fields of `forerun.data.split.HeldOut`.
        facts: other declared facts, such as upstream column names.
    """

    name: str
    title: str
    licence: str
    citation: str
    published: str
    upstream: ClassVar[Upstream]
    further: ClassVar[tuple[Upstream, ...]] = ()
    csv_tables: ClassVar[tuple[str, ...]] = ()
    columns_of: ClassVar[Mapping[str, Mapping[str, Sequence[str]]]] = {}
    query: ClassVar[tuple[str, ...]] = ()
    checked: ClassVar[Mapping[str, Any]] = {}
    held_out: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    facts: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls, declared: str = "") -> None:
        """Read the declaration of a class.

        Args:
            declared: name of its file; empty if the class defines its attributes itself.
        """
        super().__init_subclass__()
        if not declared:
            return
        content = facts_of(Path(str(sys.modules[cls.__module__].__file__)).with_name(declared))
        tables, upstream = content.pop("tables"), content.pop("upstream", [])
        cls.columns_of = {
            name: tables.get(rules.get("like"), rules) for name, rules in tables.items()
        }
        if upstream:
            cls.upstream, *further = (Upstream.at(**fields) for fields in upstream)
            cls.further = tuple(further)
        for name, value in content.items():
            setattr(cls, name, tuple(value) if isinstance(value, list) else value)

    @abstractmethod
    def tidy(self, raw: RawFiles) -> dict[str, "pd.DataFrame"]:
        """Tables from upstream files, by name; missing files are skipped."""

    def documents(self, raw: RawFiles) -> dict[str, Any]:
        """JSON documents that belong to the tables, by name."""
        return {}

    def tables(self) -> Mapping[str, "pa.DataFrameSchema"]:
        """Schema of each table that a bundle may hold, by name; additional columns are allowed."""
        return {name: declared_schema(rules) for name, rules in self.columns_of.items()}

    def splits(self, bundle: Bundle) -> list[Split]:
        """Splits of every protocol that holds out at least one row of this bundle."""
        splits = []
        for table, protocols in self.held_out.items():
            if bundle.has(table):
                rows = bundle.table(table)
                parts, groups = self.parts(rows), self.groups(rows)
                for protocol, given in protocols.items():
                    rule = HeldOut(given) if isinstance(given, str) else HeldOut(**given)
                    splits += rule.splits(protocol, table, rows, parts, groups, self.query)
        return [split for split in splits if split.held_out.any()]

    def groups(self, rows: "pd.DataFrame") -> Mapping[str, Names]:
        """Name -> n values for the rows of a table of `held_out`, for keys that are not columns."""
        return {}

    def parts(self, rows: "pd.DataFrame") -> Mapping[str, Mask]:
        """Name -> n flags for the rows of a table of `held_out`, for training or hold-out sets.

        The empty name flags the rows that take part at all.
        """
        return {}

    def checked_splits(self, bundle: Bundle) -> list[Split]:
        """The splits, checked for leakage of held-out rows into training.

        Raises:
            LeakedRows: see `Split.check`.
        """
        splits = self.splits(bundle)
        frames = {split.table: bundle.table(split.table) for split in splits}
        for split in splits:
            split.check(frames[split.table])
        return splits

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """Doubtful rows, as in `forerun.data.quality.check`; none is dropped."""
        rows = bundle.table(self.checked.get("table") or bundle.tables()[0])
        columns = {n: rows[c].to_numpy(np.float64) for n, c in self.checked.items() if n in _READ}
        time_ms = columns.get("time")
        if time_ms is not None:
            time_ms = self.checked.get("unit_ms", 1.0) * time_ms
        if "rate" in columns:
            with np.errstate(divide="ignore"):
                time_ms = 1e3 / columns["rate"]
        same = (*self.query, *self.checked.get("same", ()))
        return check(rows, Quantities(time_ms=time_ms, power_w=columns.get("power")), same=same)

    def fetch(self, mirror: Path | None = None) -> RawFiles:
        """Upstream files that are available, as in `Upstream.fetch`.

        With several repositories, paths begin with the part of OWNER/REPO/COMMIT in which they
        differ.
        """
        cache = home() / "downloads"
        found = [upstream.fetch(cache, mirror) for upstream in (self.upstream, *self.further)]
        return together(found) if self.further else found[0]

    def pull(self, *, folder: Path | None = None, mirror: Path | None = None) -> Bundle:
        """Fetch, tidy, validate and write the bundle, all or nothing.

        Args:
            folder: where it is written; the user's folder of bundles when None.
            mirror: local copy of upstream files; FORERUN_MIRROR, else the network, when None.

        Raises:
            MissingData, DamagedData: upstream files are not available, or have changed.
            BadTable: their content does not match the schemas.
        """
        raw = self.fetch(mirror)
        tables = self.tidy(raw)
        self.validate(tables)
        return Bundle.write(
            folder or bundle_folder(self.name),
            self.name,
            tables,
            documents=self.documents(raw),
            datasheet=self.readme(raw, tables),
            facts=self.provenance(),
            as_csv=self.csv_tables,
        )

    def readme(self, raw: RawFiles, tables: "Mapping[str, pd.DataFrame]") -> str:
        """Text of the bundle's README.md."""
        return self.datasheet(tables)

    def provenance(self) -> dict[str, str]:
        """Facts about the source, for `bundle.json`."""
        about = {"source": self.upstream.page, "commit": self.upstream.commit}
        return {**about, "licence": self.licence, "citation": self.citation}

    def validate(self, tables: Mapping[str, "pd.DataFrame"]) -> None:
        """Check tables against their schemas.

        Raises:
            BadTable: the message names the table, the column and the first wrong row.
        """
        schemas = self.tables()
        for name, frame in tables.items():
            if name not in schemas:
                raise BadTable(f"{self.name} has no table {name!r}; it has {', '.join(schemas)}.")
            check_table(frame, schemas[name], f"{self.name}.{name}")

    def datasheet(self, tables: Mapping[str, "pd.DataFrame"]) -> str:
        """Datasheet text: source, licence, and the content of the tables."""
        lines = [f"# {self.name}: {self.title}", ""]
        lines += [f"Source: {self.upstream.page}", f"Licence: {self.licence}", ""]
        lines += [f"Cite: {self.citation}", "", f"Published: {self.published}", "", "## Tables"]
        for name, frame in tables.items():
            lines.append(f"- `{name}`: {len(frame):,} rows; {', '.join(map(str, frame.columns))}")
        return "\n".join(lines) + "\n"


def tables_there(parts: Mapping[str, Sequence[Any]]) -> dict[str, "pd.DataFrame"]:
    """Tables from lists of rows, or from frames to concatenate; empty lists are skipped."""
    return {
        name: (
            pd.concat(rows, ignore_index=True)
            if isinstance(rows[0], pd.DataFrame)
            else pd.DataFrame(rows)
        )
        for name, rows in parts.items()
        if rows
    }


def families_of(models: Iterable[Any], patterns: Iterable[tuple[str, str]] = ()) -> Names:
    """`family_of` for each of n models."""
    return np.array([family_of(str(model), patterns) for model in models], dtype=np.str_)


def family_of(model: str, patterns: Iterable[tuple[str, str]] = ()) -> str:
    """Architecture family of a published model.

    Args:
        model: name as printed.
        patterns: (family, regular expression for the start of its models' names); the first match
            counts, otherwise the family is the leading letters of the name.
    """
    for name, pattern in patterns:
        if re.match(pattern, model):
            return name
    letters = re.match(r"[a-z]+", model.lower())
    return letters[0] if letters else model.lower()


def first_reasons(rules: Sequence[tuple[str, ArrayLike]], rows: int) -> NDArray[np.str_]:
    """The first reason that applies to each of n rows; empty if none does.

    Args:
        rules: (reason, n flags).
        rows: n.
    """
    found = np.full(rows, "", dtype="<U64")
    for why, where in rules:
        found[np.asarray(where, dtype=np.bool_) & (found == "")] = why
    return found
