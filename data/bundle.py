"""A dataset on disk: a folder of tidy tables with a datasheet, named by a hash of its content."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forerun.data.errors import BadTable, InputError, MissingData
from forerun.data.lazy import pd

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FACTS = "bundle.json"
DATASHEET = "README.md"


@dataclass(frozen=True)
class Bundle:
    """A folder of Parquet and CSV tables, JSON documents and a datasheet.

    Attributes:
        name: dataset that the folder holds.
        folder: its path.
    """

    name: str
    folder: Path

    @classmethod
    def open(cls, folder: Path, name: str | None = None) -> "Bundle":
        """The bundle in a folder.

        Args:
            folder: holds at least one table.
            name: dataset; when None, the name in `bundle.json`, else the folder's name.

        Raises:
            MissingData: the folder does not exist or holds no table.
        """
        if not folder.is_dir():
            raise MissingData(f"No folder {folder}; a bundle is a folder of tables.")
        bundle = cls("", folder)
        if not bundle.tables():
            raise MissingData(f"{folder} holds no table (.parquet or .csv).")
        return cls(name or str(bundle.facts.get("name", folder.resolve().name)), folder)

    def tables(self) -> tuple[str, ...]:
        """Names of the tables, sorted."""
        found = {p.stem for p in self.folder.iterdir() if p.suffix in (".parquet", ".csv")}
        return tuple(sorted(found))

    def documents(self) -> tuple[str, ...]:
        """Names of the JSON documents, sorted; `bundle.json` is not one of them."""
        found = {p.stem for p in self.folder.glob("*.json") if p.name != FACTS}
        return tuple(sorted(found))

    def has(self, name: str) -> bool:
        """Whether the bundle has a table of that name."""
        return name in self.tables()

    def table(self, name: str) -> "pd.DataFrame":
        """The table in NAME.parquet, else in NAME.csv.

        Raises:
            MissingData: the bundle has no such table.
            BadTable: the file cannot be read.
        """
        for path in (self.folder / f"{name}.parquet", self.folder / f"{name}.csv"):
            if not path.is_file():
                continue
            try:
                if path.suffix == ".parquet":
                    return pd.read_parquet(path)
                return pd.read_csv(path, low_memory=False)
            except (OSError, ValueError) as error:
                raise BadTable(f"Cannot read {path}: {error}") from error
        there = ", ".join(self.tables())
        raise MissingData(
            f"{self.folder} has no table {name!r} (.parquet or .csv); it has {there}."
        )

    def document(self, name: str) -> Any:
        """The content of NAME.json.

        Raises:
            MissingData: the bundle has no such document.
            BadTable: the file is not JSON.
        """
        path = self.folder / f"{name}.json"
        if not path.is_file():
            raise MissingData(f"{self.folder} has no document {name}.json.")
        return _read_json(path)

    @property
    def facts(self) -> Mapping[str, Any]:
        """Content of `bundle.json`: commit, licence, digest, row counts; empty without one."""
        path = self.folder / FACTS
        content = _read_json(path) if path.is_file() else {}
        return content if isinstance(content, dict) else {}

    @property
    def datasheet(self) -> str:
        """Text of README.md; empty without one."""
        path = self.folder / DATASHEET
        return path.read_text(encoding="utf-8") if path.is_file() else ""

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the values of all tables and documents, in hexadecimal.

        It does not depend on file format, number width, categories, and the order of rows and
        columns, provided that a column of text is not parsed as numbers.
        """
        total = hashlib.sha256()
        for name in self.tables():
            total.update(f"table {name} {table_digest(self.table(name))}\n".encode())
        for name in self.documents():
            text = json.dumps(self.document(name), sort_keys=True)
            total.update(f"document {name} {text}\n".encode())
        return total.hexdigest()

    @classmethod
    def write(
        cls,
        folder: Path,
        name: str,
        tables: Mapping[str, "pd.DataFrame"],
        *,
        documents: Mapping[str, Any] | None = None,
        datasheet: str = "",
        facts: Mapping[str, Any] | None = None,
        as_csv: Collection[str] = (),
    ) -> "Bundle":
        """Write a bundle and replace the content of `folder` with it, all or nothing.

        Args:
            folder: where it is written; an existing bundle is replaced at the end.
            name: dataset.
            tables: table name -> rows.
            documents: document name -> content that can be serialised as JSON.
            datasheet: text of README.md.
            facts: added to `bundle.json`, which always holds name, digest and row counts.
            as_csv: tables written as CSV; the others are Parquet.
        """
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            _write_files(draft, tables, documents or {}, datasheet, as_csv)
            counts = {table: len(rows) for table, rows in tables.items()}
            known = {"name": name, "digest": cls(name, draft).digest, "rows": counts}
            _write_json(draft / FACTS, {**(facts or {}), **known})
            draft.chmod(0o755)
            _replace(folder, draft)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return cls(name, folder)

    def with_tables(
        self,
        tables: Mapping[str, "pd.DataFrame"],
        *,
        datasheet: str | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> "Bundle":
        """Add or replace tables of this bundle on disk, all or nothing; returns the new bundle.

        Args:
            tables: table name -> rows.
            datasheet: text of README.md; unchanged when None.
            facts: added to the facts in `bundle.json`; digest and row counts are recomputed.

        Raises:
            BadTable: an existing file that is kept cannot be read.
        """
        kept = {name: self.table(name) for name in self.tables() if name not in tables}
        return Bundle.write(
            self.folder,
            self.name,
            {**kept, **tables},
            documents={name: self.document(name) for name in self.documents()},
            datasheet=self.datasheet if datasheet is None else datasheet,
            facts={**self.facts, **(facts or {})},
            as_csv=[name for name in kept if not (self.folder / f"{name}.parquet").is_file()],
        )


def home() -> Path:
    """The user's folder for bundles, downloads and registries: FORERUN_HOME or ~/.cache/forerun.

    Raises:
        InputError: there is a file in its place.
    """
    given = os.environ.get("FORERUN_HOME")
    if not given:
        return Path.home() / ".cache" / "forerun"
    folder = Path(given).expanduser()
    if folder.is_file():
        raise InputError(f"FORERUN_HOME is {given!r}, which is a file; set it to a folder.")
    return folder


def bundle_folder(name: str) -> Path:
    """Where `forerun data pull NAME` puts its bundle."""
    return home() / "bundles" / name


def find(name: str, data_dir: Path | None = None) -> Bundle:
    """The bundle in `data_dir`, else the pulled one.

    Raises:
        MissingData: it is not on this machine.
    """
    if data_dir is not None:
        return Bundle.open(data_dir, name)
    folder = bundle_folder(name)
    _recover(folder)
    if not folder.is_dir():
        raise MissingData(
            f"The dataset {name} is not on this machine: `forerun data pull {name}` downloads it, "
            "--data DIR reads a folder."
        )
    return Bundle.open(folder, name)


def table_digest(frame: "pd.DataFrame") -> str:
    """SHA-256 over a table's values, independent of the order of its rows and columns."""
    import numpy as np

    columns = sorted(map(str, frame.columns))
    canonical = pd.DataFrame({name: _canonical(frame[name]) for name in columns})
    rows = pd.util.hash_pandas_object(canonical, index=False).to_numpy(dtype=np.uint64)
    head = json.dumps(columns).encode()
    return hashlib.sha256(head + np.sort(rows).astype("<u8").tobytes()).hexdigest()


def _canonical(column: "pd.Series[Any]") -> "NDArray[np.float64] | pd.Categorical[Any]":
    """Numbers as float64, everything else as text; all missing values become equal."""
    import numpy as np

    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(column.cat.categories.dtype)
    if pd.api.types.is_numeric_dtype(column.dtype) or column.isna().all():
        # Adding zero turns -0.0 into 0.0.
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan)) + 0.0
    codes, uniques = pd.factorize(column, use_na_sentinel=True)
    labels = pd.Index([str(value) for value in uniques])
    return pd.Categorical.from_codes(codes, labels)


def _write_files(
    folder: Path,
    tables: Mapping[str, "pd.DataFrame"],
    documents: Mapping[str, Any],
    datasheet: str,
    as_csv: Collection[str],
) -> None:
    for name, rows in tables.items():
        if name in as_csv:
            rows.to_csv(folder / f"{name}.csv", index=False)
        else:
            rows.to_parquet(folder / f"{name}.parquet", index=False, compression="zstd")
    for name, content in documents.items():
        _write_json(folder / f"{name}.json", content)
    (folder / DATASHEET).write_text(datasheet, encoding="utf-8")


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadTable(f"Cannot read {path}: {error}") from error


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.old")


def _replace(folder: Path, draft: Path) -> None:
    """Replace `folder` with `draft`; between the two renames the old folder can be recovered."""
    _recover(folder)
    if folder.exists():
        shutil.rmtree(_aside(folder), ignore_errors=True)
        folder.rename(_aside(folder))
    draft.rename(folder)
    shutil.rmtree(_aside(folder), ignore_errors=True)


def _recover(folder: Path) -> None:
    if not folder.exists() and _aside(folder).exists():
        _aside(folder).rename(folder)
