"""Where the stores keep their records: a database in the folder FORERUN_HOME, or PostgreSQL."""

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from forerun.data.described import first_fault
from forerun.data.errors import CannotStore, InputError, MissingExtra
from forerun.service.log import log
from forerun.service.settings import Settings

if TYPE_CHECKING:
    from forerun.service.stores.database.connections import Database

SUFFIX: Final = ".json"
"""End of the names of records that hold a value."""
FILE: Final = "forerun.sqlite"
FOLDERS: Final = ("devices", "graphs", "measurements", "keys", "routed")
"""Folders in which versions before 0.3 kept records as files; those within them were stores too."""
TENANTS: Final = "tenants"
"""Within it each tenant has a place for its stores."""


class DamagedRecord(ValueError):
    """A record does not hold what its store wrote."""


class StoreFull(CannotStore):
    """The store holds as much as it may."""

    status = 507


class StillInUse(InputError):
    """What was to be deleted is needed by measurements that are in use."""

    status = 409


def log_damage(path: Path, why: Exception) -> None:
    """Log a record that is left out because it cannot be read or does not hold what it should."""
    said = first_fault(why) if isinstance(why, ValidationError) else str(why)
    log().error("a stored file is damaged and left out", file=str(path), why=said[:500])


@dataclass(frozen=True)
class Place:
    """A place in a database; `place / NAME` is the place of a store.

    Attributes:
        source: the database, or the folder whose database it is, which is opened on first use.
        path: names from the outermost to the innermost, separated by slashes; empty for the whole.
    """

    source: "Database | Path"
    path: str = ""

    @property
    def name(self) -> str:
        """The innermost name."""
        return self.path.rpartition("/")[2]

    @property
    def database(self) -> "Database":
        """The database, one for each folder in a process."""
        return _in_folder(self.source) if isinstance(self.source, Path) else self.source

    def __truediv__(self, name: str) -> "Place":
        return Place(self.source, f"{self.path}/{name}" if self.path else name)

    def is_empty(self) -> bool:
        """Whether nothing was ever stored in the folder, so that nothing need be opened.

        What cannot be examined counts as used.
        """
        if not isinstance(self.source, Path):
            return False
        for name in (FILE, *FOLDERS, TENANTS):
            try:
                os.stat(f"{self.source}/{name}")  # noqa: PTH116
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                pass
            return False
        return True


def place_of(settings: Settings) -> Place:
    """The place that the settings select for measurements, devices, graphs and keys.

    Each tenant has a place of its own, and those of no tenant have the whole database, where no
    store is named like the place of the tenants.

    Raises:
        BadDatabaseUrl: the database has no valid address.
        MissingExtra: a database is set, and what it needs is not installed.
    """
    url = settings.database_url
    whole = Place(settings.home if url is None else _at(url.get_secret_value()))
    return whole if settings.tenant is None else whole / TENANTS / settings.tenant


def database_of(settings: Settings) -> "Database":
    """The database of the settings, one for each folder or address in a process.

    Raises:
        BadDatabaseUrl, MissingExtra: as `place_of`.
    """
    return place_of(settings).database


@lru_cache(maxsize=64)
def _in_folder(home: Path) -> "Database":
    from forerun.service.stores.database.connections import FileDatabase

    return FileDatabase(home)


@lru_cache(maxsize=4)
def _at(url: str) -> "Database":
    from forerun.service.stores.database.connections import Database

    try:
        return Database(url)
    except ModuleNotFoundError:
        raise MissingExtra("FORERUN_DATABASE_URL", "postgres") from None
