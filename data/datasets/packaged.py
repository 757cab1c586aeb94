"""Datasets whose rows are part of the package and need no download."""

from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, ClassVar

from forerun.data.bundle import DATASHEET, FACTS, Bundle
from forerun.data.datasets.dataset import Dataset
from forerun.data.errors import MissingData
from forerun.data.lazy import pd
from forerun.data.upstream.downloads import RawFiles, read_plain_or_gzip


class PackagedDataset(Dataset):
    """Tables in a folder of the package; an installed package lacks the large ones.

    Attributes:
        origin: where the rows come from, in a few words.
        room: subfolder of `forerun.data` with the dataset's folder; empty for `forerun.data`
            itself.
    """

    origin: ClassVar[str]
    room: ClassVar[str] = ""

    def packaged(self) -> RawFiles:
        """The files of the package.

        Raises:
            MissingData: this package does not hold all tables.
        """
        with as_file(files("forerun.data").joinpath(self.room, self.name)) as folder:
            raw = raw_files(folder) if folder.is_dir() else None
        names = [f"{name}.parquet" for name in self.columns_of]
        if raw is None or not set(names) <= set(raw.matching("*.parquet")):
            raise MissingData(
                f"The tables of {self.name} are not in this package: a clone of the repository has "
                f"them, and --data DIR reads a folder; origin: {self.origin}."
            )
        return raw

    def fetch(self, mirror: Path | None = None) -> RawFiles:
        """The files of the package; there is nothing to mirror."""
        return self.packaged()

    def tidy(self, raw: RawFiles) -> dict[str, "pd.DataFrame"]:
        """The tables, which are tidy in the package already."""
        return {Path(path).stem: raw.table(path) for path in raw.matching("*.parquet")}

    def table_of(self, bundle: Bundle, name: str) -> "pd.DataFrame":
        """A table of a bundle, or of the package if the bundle does not have it."""
        return bundle.table(name) if bundle.has(name) else self.tidy(self.packaged())[name]

    def documents(self, raw: RawFiles) -> dict[str, Any]:
        """JSON documents that come with the tables."""
        paths = [path for path in raw.matching("*.json") if path != FACTS]
        return {Path(path).stem: raw.json(path) for path in paths}

    def readme(self, raw: RawFiles, tables: "Mapping[str, pd.DataFrame]") -> str:
        """The README of the package, else `datasheet`."""
        described = read_plain_or_gzip(raw.folder, DATASHEET)
        return self.datasheet(tables) if described is None else described.decode()

    def provenance(self) -> dict[str, str]:
        """Facts about the source, for `bundle.json`."""
        return {"source": self.origin, "licence": self.licence, "citation": self.citation}

    def datasheet(self, tables: "Mapping[str, pd.DataFrame]") -> str:
        """Text of README.md if the package has none."""
        lines = [f"# {self.name}: {self.title}", "", f"Origin: {self.origin}."]
        lines += [f"Licence: {self.licence}", "", f"Published: {self.published}", "", "## Tables"]
        lines += [f"- `{name}`: {len(frame):,} rows" for name, frame in tables.items()]
        return "\n".join(lines) + "\n"


class MeasuredDataset(PackagedDataset):
    """Tables under `data/measured/NAME`, as written by the collector with the command `origin`."""

    licence = "Apache-2.0, as forerun itself"
    room = "measured"


class PackedTables(PackagedDataset):
    """Published measurements on language models, under `data/llm_tables/NAME`.

    Their licences permit redistribution, so the tables come with the package.
    """

    room = "llm_tables"


def raw_files(folder: Path) -> RawFiles:
    """All files of a folder, by name."""
    return RawFiles(folder, tuple(sorted(path.name for path in folder.iterdir() if path.is_file())))
