"""Where the stores keep their records: in the folder FORERUN_HOME, or in a database."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from forerun.data.errors import CannotStore, InputError, MissingExtra
from forerun.data.file_store import FileStore
from forerun.service.log import log
from forerun.service.settings import Settings

if TYPE_CHECKING:
    from forerun.service.stores.database.connections import Database


class StoreFull(CannotStore):
    """The store holds as much as it may."""

    status = 507


class StillInUse(InputError):
    """What was to be deleted is needed by measurements that are in use."""

    status = 409


def log_damage(path: Path, why: Exception) -> None:
    """Log a file that is left out because it cannot be read or does not hold what it should."""
    log().error("a stored file is damaged and left out", file=str(path), why=str(why)[:500])


Value = TypeVar("Value")


class Records(Protocol[Value]):
    """Values by name, shared by any number of threads and processes.

    After `put` returned, or the outermost `writing` that it stands in ended, a value survives a
    kill of the process. A record that does not hold a value is reported, left out and left in
    place, so that it disables no other one; `put` replaces it.
    """

    def is_used(self) -> bool:
        """Whether there ever was a record; true also where that cannot be known."""

    def stamp(self) -> int:
        """A stamp that changes with every change by any process; -1 right after a change."""

    def is_unchanged(self, stamp: int) -> bool:
        """Whether no record was added, replaced or deleted since `stamp()` returned this stamp."""

    def names(self) -> frozenset[str]:
        """Names of all records, also of those that hold no value."""

    def values(self) -> dict[str, Value]:
        """Values by name, in the order of the names; only of names that end in `.json`."""

    def held(self, name: str) -> Value | None:
        """The value if it is in memory and was not deleted; nothing is read."""

    def get(self, name: str) -> Value:
        """The value of a record.

        Raises:
            FileNotFoundError: there is no such record.
            DamagedFile: the record does not hold a value.
            CannotStore: the place does not answer.
        """

    def writing(self) -> AbstractContextManager[None]:
        """Exclude all other writers from here to the end; what is read inside is current.

        Raises:
            CannotStore: nothing can be written now.
        """

    def put(self, name: str, value: Value) -> None:
        """Write a value, and replace the one of that name.

        Raises:
            DiskFull, CannotStore: it could not be written; what was stored before remains.
        """

    def mark(self, name: str) -> None:
        """Write an empty record, whose name says all; repeating it has no effect.

        Raises:
            DiskFull, CannotStore: it could not be written.
        """

    def delete(self, name: str) -> bool:
        """Delete a record, whether or not it holds a value.

        Returns:
            Whether there was such a record.

        Raises:
            CannotStore: it could not be deleted.
        """


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


Place = Path | DatabasePlace
"""A folder, or its like in a database; `place / NAME` is the place of a store."""


def place_of(settings: Settings) -> Place:
    """The place that the settings select for measurements, devices, graphs and keys.

    Each tenant has a place of its own, and those of no tenant have the whole home or database,
    where no store is named like the folder of the tenants.

    Raises:
        BadDatabaseUrl: the database has no valid address.
        MissingExtra: a database is set, and what it needs is not installed.
    """
    database = database_of(settings)
    whole: Place = settings.home if database is None else DatabasePlace(database)
    return whole if settings.tenant is None else whole / TENANTS / settings.tenant


def database_of(settings: Settings) -> "Database | None":
    """The database of the settings, one for each address in a process; None where none is set.

    Raises:
        BadDatabaseUrl, MissingExtra: as `place_of`.
    """
    if settings.database_url is None:
        return None
    return _database(settings.database_url.get_secret_value())


@lru_cache(maxsize=4)
def _database(url: str) -> "Database":
    try:
        from forerun.service.stores.database.connections import Database

        return Database(url)
    except ModuleNotFoundError:
        raise MissingExtra("FORERUN_DATABASE_URL", "postgres") from None


def records_in(
    place: Place,
    encode: Callable[[Value], str],
    decode: Callable[[str, bytes], Value],
    report: Callable[[Path, Exception], None] = lambda path, why: None,
    weigh: Callable[[Value], int] = lambda value: 0,
    room: int = 0,
) -> Records[Value]:
    """The records of a store; arguments as those of `FileStore`.

    Raises:
        CannotStore: they are in a database, which does not answer or has other tables.
    """
    if isinstance(place, Path):
        return FileStore(place, encode, decode, report, weigh, room)
    from forerun.service.stores.database.store import DatabaseStore

    return DatabaseStore(place, encode, decode, report, weigh, room)


def is_used(place: Place) -> bool:
    """Whether a store ever kept anything there."""
    if isinstance(place, Path):
        return place.is_dir()
    return records_in(place, str, lambda name, content: content.decode(), room=1).is_used()
