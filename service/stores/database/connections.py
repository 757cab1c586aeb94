"""A bounded pool of connections to a PostgreSQL database, and what was seen there last."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from sqlalchemy import URL, Connection, create_engine, func, make_url, select
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from forerun.data.errors import CannotStore, DiskFull
from forerun.data.file_store import SUFFIX
from forerun.service.log import log
from forerun.service.stores.database.tables import (
    RECORDS,
    STORES,
    BadDatabaseUrl,
    DatabaseAway,
    DatabaseRefused,
    check_version,
)

if TYPE_CHECKING:
    from forerun.service.stores.database.store import DatabaseStore

CONNECTIONS: Final = 5
"""Connections of one process at most: about one for each of its threads that answer."""
CONNECT_S: Final = 3
TURN_S: Final = 1.0
"""Time between two looks at what other processes changed, and between two attempts to connect to
a database that was away, seconds."""
LIMITS: Final = {
    "connect_timeout": CONNECT_S,
    "tcp_user_timeout": 5_000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "application_name": "forerun",
    "prepare_threshold": None,
    "options": "-c statement_timeout=20s -c lock_timeout=5s "
    "-c idle_in_transaction_session_timeout=30s",
}
"""Settings of a connection. Poolers that stand between need connections without prepared
statements."""
_SCHEMES: Final = ("postgresql", "postgres", "postgresql+psycopg")
_NO_ROOM: Final = "53100"
_AWAY: Final = ("08", "40", "53", "55", "57")
"""Classes of SQLSTATE by which a database says that it cannot do now what it could later."""


class Database:
    """A PostgreSQL database, and the stores of this process that keep their records in it.

    Args:
        url: address, with a password where one is needed. It is in no message and in no log.

    Raises:
        BadDatabaseUrl: it is no address of a PostgreSQL database.
    """

    def __init__(self, url: str) -> None:
        self._url = _parsed(url)
        self._engine = create_engine(
            self._url,
            pool_size=CONNECTIONS,
            max_overflow=0,
            pool_timeout=CONNECT_S,
            pool_pre_ping=True,
            pool_recycle=1_800,
            hide_parameters=True,
            connect_args=LIMITS,
        )
        self._stores: WeakSet[DatabaseStore[object]] = WeakSet()
        self._turn = Lock()
        self._followers = 0
        self._is_checked = False
        self._looked_s = self._failed_s = float("-inf")
        self._problem: CannotStore | None = None

    def __repr__(self) -> str:
        return "Database(FORERUN_DATABASE_URL)"

    @property
    def problem(self) -> CannotStore | None:
        """What kept the database from answering last time; None where it answered."""
        return self._problem

    @contextmanager
    def transaction(self, is_snapshot: bool = False) -> Iterator[Connection]:
        """A transaction, which is committed at the end of the block, or rolled back by an error.

        After a failure to connect, all who ask within the next second are refused at once.

        Args:
            is_snapshot: all statements see what had been committed before the first one.

        Raises:
            DatabaseAway: there is no connection, or it broke; whether the transaction was carried
                out is then unknown.
            DiskFull, DatabaseRefused: the database refused.
        """
        if monotonic() - self._failed_s < TURN_S:
            raise DatabaseAway
        try:
            connection = self._engine.connect()
        except SQLAlchemyError as error:
            raise self._failed(error, is_away=True) from error
        try:
            with connection:
                if is_snapshot:
                    connection.execution_options(isolation_level="REPEATABLE READ")
                with connection.begin():
                    yield connection
        except SQLAlchemyError as error:
            is_away = isinstance(error, DBAPIError) and error.connection_invalidated
            raise self._failed(error, is_away=is_away) from error
        if isinstance(self._problem, DatabaseAway):
            log().info("the database answers again")
        self._problem = None

    def joined_by(self, store: "DatabaseStore[object]") -> None:
        """Keep a store informed of what other processes change, as long as it exists."""
        self._stores.add(store)

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Within the block somebody else calls `look` every second, so that no question does."""
        self._followers += 1
        try:
            yield
        finally:
            self._followers -= 1

    def look(self) -> None:
        """Take over what other processes changed; where the database is away, nothing happens."""
        with suppress(CannotStore):
            self.read()

    def look_at_times(self) -> None:
        """Look, unless another thread follows the changes or somebody looked within a second."""
        if not self._followers and monotonic() - self._looked_s >= TURN_S:
            self.look()

    def read(self) -> None:
        """Take over what other processes changed.

        Raises:
            DatabaseAway, DatabaseRefused: the database does not answer.
            OtherSchema: its tables are older or newer than this code.
        """
        with self._turn:
            self._looked_s = monotonic()
            try:
                with self.transaction(is_snapshot=True) as connection:
                    if not self._is_checked:
                        check_version(connection)
                        self._is_checked = True
                    rows = connection.execute(select(STORES)).all()
                    counters = {row.name: (row.changed, row.deleted) for row in rows}
                    for store in list(self._stores):
                        store.take_over(connection, counters.get(store.name))
            except CannotStore as error:
                self._problem = error
                raise

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Path of a store -> its records, and the bytes of their contents.

        Raises:
            CannotStore: the database does not answer.
        """
        of_all = func.sum(func.octet_length(RECORDS.c.content))
        chosen = select(RECORDS.c.store, func.count(), of_all).where(
            RECORDS.c.name.endswith(SUFFIX, autoescape=True)
        )
        with self.transaction() as connection:
            rows = connection.execute(chosen.group_by(RECORDS.c.store)).all()
        return {store: (count, int(total)) for store, count, total in rows}

    def close(self) -> None:
        """Close all connections, as before a fork; they are opened again when they are needed."""
        self._engine.dispose()

    def _failed(self, error: SQLAlchemyError, is_away: bool) -> CannotStore:
        """The problem that an error of the database is; it is logged without the password."""
        state = getattr(getattr(error, "orig", None), "sqlstate", None)
        if is_away:
            self._failed_s = monotonic()
        if not is_away and state == _NO_ROOM:
            problem: CannotStore = DiskFull(
                "Nothing was stored: the disk of the database is full. Free some space there; "
                "questions are answered meanwhile."
            )
        elif is_away or state is None or state[:2] in _AWAY:
            problem = DatabaseAway()
        else:
            problem = DatabaseRefused(
                "Nothing was read or stored: the database of FORERUN_DATABASE_URL refused "
                f"(SQLSTATE {state}); the log says why."
            )
        if type(problem) is not type(self._problem):
            log().error("the database cannot be used", why=self._said(error))
        self._problem = problem
        return problem

    def _said(self, error: SQLAlchemyError) -> str:
        said = " ".join(str(getattr(error, "orig", None) or error).split())[:500]
        password = self._url.password
        return said.replace(str(password), "***") if password else said


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
        if parsed.drivername not in _SCHEMES:
            raise ValueError(parsed.drivername)
        return parsed.set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError):
        raise BadDatabaseUrl(
            "FORERUN_DATABASE_URL is no address of a PostgreSQL database; it has the form "
            "postgresql://USER:PASSWORD@HOST:PORT/DATABASE."
        ) from None
