"""Datasets measured by forerun's own collectors: tables of this package, without a download."""

from typing import ClassVar

from forerun.data.datasets.packaged import PackagedDataset, raw_files
from forerun.data.errors import MissingData
from forerun.data.upstream.downloads import RawFiles

__all__ = ["MeasuredDataset", "raw_files"]


class MeasuredDataset(PackagedDataset):
    """Tables under `data/measured/NAME`, as a collector wrote them.

    Attributes:
        collector: the command that measures such rows.
    """

    collector: ClassVar[str]
    licence = "Apache-2.0, as forerun itself"

    def __init_subclass__(cls) -> None:
        """Set `origin` to the collector's command."""
        super().__init_subclass__()
        cls.origin = cls.collector

    def package_path(self) -> tuple[str, ...]:
        """Names of the folders below `forerun.data`, the dataset's own last."""
        return ("measured", self.name)

    def packaged(self) -> RawFiles:
        """The files of the package.

        Raises:
            MissingData: this package holds none.
        """
        try:
            return super().packaged()
        except MissingData:
            raise MissingData(
                f"No rows of {self.name} come along; `{self.collector}` measures."
            ) from None
