"""Where the stores keep their records: in the folder FORERUN_HOME, or in a database."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from forerun.data.errors import CannotStore, InputError, MissingExtra
from forerun.data.file_store import FileStore
from forerun.service.log import log
from forerun.service.settings import Settings

if TYPE_CHECKING:
    from forerun.service.stores.database.connections import Database
    from forerun.service.stores.database.store import DatabaseStore


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


Records: TypeAlias = FileStore[Value] | "DatabaseStore[Value]"
"""Values by name, shared by any number of threads and processes.

After `put` returned, or the outermost `writing` that it stands in ended, a value survives a kill of
the process. A record that does not hold a value is reported, left out and left in place, so that it
disables no other one; `put` replaces it."""
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
