"""Where a store keeps its records in a database, as a path says where one keeps its files."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from forerun.service.stores.database.connections import Database

TENANTS: Final = "tenants"
"""Within it each tenant has a place for its stores."""


@dataclass(frozen=True)
class DatabasePlace:
    """A place in a database.

    Attributes:
        database: the database.
        path: names from the outermost to the innermost, separated by slashes; empty for the whole.
    """

    database: "Database"
    path: str = ""

    @property
    def name(self) -> str:
        """The innermost name."""
        return self.path.rpartition("/")[2]

    def __truediv__(self, name: str) -> "DatabasePlace":
        return DatabasePlace(self.database, f"{self.path}/{name}" if self.path else name)
