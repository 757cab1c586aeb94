"""What datasets of published measurements on language models have in common; how they are packed.

Their licences allow to pass the tables on, so that they come with the package. Tables of timed
operators are large: a clone of the repository has them, an installed package does not.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from forerun.data.datasets.packaged import PackagedDataset
from forerun.data.errors import MissingData
from forerun.data.upstream.downloads import RawFiles

if TYPE_CHECKING:
    import pandas as pd

_ZSTD_LEVEL: Final = 19
_LARGE_ROWS: Final = 30_000
_ONE_GROUP: Final = 1 << 24
_PAGE_BYTES: Final = 8 << 20


class PackedTables(PackagedDataset):
    """Tables under `data/llm_tables/NAME`, as `write_packed` wrote them."""

    def package_path(self) -> tuple[str, ...]:
        """Names of the folders below `forerun.data`, the dataset's own last."""
        return ("llm_tables", self.name)

    def packaged(self) -> RawFiles:
        """The files of the package.

        Raises:
            MissingData: this package holds no table of the dataset.
        """
        try:
            raw = super().packaged()
        except MissingData:
            raw = None
        if raw is None or not raw.matching("*.parquet"):
            raise MissingData(
                f"The tables of {self.name} are too large for an installed package; a clone of the "
                "repository has them in data/llm_tables, and --data DIR reads a folder."
            )
        return raw


def write_packed(tables: "Mapping[str, pd.DataFrame]", folder: Path) -> None:
    """Write tables as small Parquet files, whose values are kept to the last bit.

    Args:
        tables: name -> rows, written in the order of `ordered`.
        folder: existing folder; other files in it stay.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name, frame in tables.items():
        measured = [n for n in _fractions(frame) if frame[n].nunique() > len(frame) // 100]
        pq.write_table(
            pa.Table.from_pandas(ordered(frame), preserve_index=False),
            folder / f"{name}.parquet",
            compression="zstd",
            compression_level=_ZSTD_LEVEL,
            use_dictionary=[n for n in frame if n not in measured],
            column_encoding=dict.fromkeys(measured, "BYTE_STREAM_SPLIT"),
            data_page_size=_PAGE_BYTES,
            row_group_size=_ONE_GROUP,
            write_statistics=False,
        )


def ordered(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Rows in the order in which they are packed.

    Those of large tables are sorted, by fractions last, so that they become small; those of others,
    among them traces of requests, keep their order.
    """
    if len(frame) <= _LARGE_ROWS:
        return frame.reset_index(drop=True)
    fractions = _fractions(frame)
    whole = [str(n) for n in frame if n not in fractions]
    return frame.sort_values([*whole, *fractions], ignore_index=True)


def _fractions(frame: "pd.DataFrame") -> list[str]:
    return [str(n) for n in frame if frame[n].dtype.kind == "f"]
