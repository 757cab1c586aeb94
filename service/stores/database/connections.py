"""A database, SQLite in the folder FORERUN_HOME or PostgreSQL, and what was seen there last."""

import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from errno import ENOSPC
from pathlib import Path
from secrets import token_hex
from tempfile import mkdtemp
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal
from weakref import WeakSet, finalize

from sqlalchemy import (
    URL,
    Connection,
    LargeBinary,
    NullPool,
    cast,
    create_engine,
    delete,
    event,
    func,
    make_url,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from forerun.data.errors import CannotStore, DiskFull
from forerun.data.file_store import (
    DRAFT_SUFFIX,
    HOME,
    Signature,
    disk_problem,
    obstacle,
    signature_of,
    synced,
    writing_to,
)
from forerun.service.log import log
from forerun.service.stores.database.tables import (
    RECORDS,
    STORES,
    BadDatabaseUrl,
    DatabaseAway,
    DatabaseRefused,
    check_version,
)
from forerun.service.stores.places import FILE, SUFFIX

if TYPE_CHECKING:
    from forerun.service.stores.database.store import Records

CONNECTIONS: Final = 5
"""Connections of one process at most: about one for each of its threads that answer."""
CONNECT_S: Final = 3
LOCK_S: Final = 5
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
    "options": f"-c statement_timeout=20s -c lock_timeout={LOCK_S}s "
    "-c idle_in_transaction_session_timeout=30s",
}
"""Settings of a connection. Poolers that stand between need connections without prepared
statements."""
PART: Final = 500
"""Records whose contents are read in one statement."""
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

    insert: Any = staticmethod(postgresql.insert)
    reading: Mapping[str, Any] = {"isolation_level": "REPEATABLE READ"}
    """Options of a connection that only reads: all statements see the same state."""
    writing: Mapping[str, Any] = {}
    content_bytes = func.octet_length(RECORDS.c.content)

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
        self._begin()

    def _begin(self) -> None:
        self._stores: WeakSet[Records[Any]] = WeakSet()
        self._turn = Lock()
        self._followers = 0
        self._is_checked = False
        self._looked_s = self._failed_s = float("-inf")
        self._problem: CannotStore | None = None
        self._sized: tuple[object, dict[str, tuple[int, int]]] = None, {}

    def __repr__(self) -> str:
        return "Database(FORERUN_DATABASE_URL)"

    @property
    def problem(self) -> CannotStore | None:
        """What kept the database from answering last time; None where it answered."""
        return self._problem

    @contextmanager
    def transaction(self, is_write: bool = True) -> Iterator[Connection]:
        """A transaction, which is committed at the end of the block, or rolled back by an error.

        Args:
            is_write: whether it may write; where not, all statements see what had been committed
                before the first one.

        Raises:
            DatabaseAway: there is no connection, or it broke; whether the transaction was carried
                out is then unknown.
            DiskFull, DatabaseRefused: the database refused.
        """
        try:
            self._before(is_write)
            connection = self._engine.connect()
        except SQLAlchemyError as error:
            raise self._failed(error, is_away=True) from error
        try:
            with connection:
                connection.execution_options(**(self.writing if is_write else self.reading))
                with connection.begin():
                    yield connection
        except SQLAlchemyError as error:
            is_away = isinstance(error, DBAPIError) and error.connection_invalidated
            raise self._failed(error, is_away=is_away) from error
        if isinstance(self._problem, DatabaseAway):
            log().info("the database answers again")
        self._problem = None

    def joined_by(self, store: "Records[Any]") -> None:
        """Keep a store informed of what other processes change, as long as it exists.

        Raises:
            CannotStore: as `read`.
        """
        self._stores.add(store)
        self.read()

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
                with self.transaction(is_write=False) as connection:
                    if not self._is_checked:
                        check_version(connection)
                        self._is_checked = True
                    counters = self._counters(connection)
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
        chosen = select(RECORDS.c.store, func.count(), func.sum(self.content_bytes)).where(
            RECORDS.c.name.endswith(SUFFIX, autoescape=True)
        )
        with self.transaction(is_write=False) as connection:
            counters = self._counters(connection)
            if counters != self._sized[0]:
                rows = connection.execute(chosen.group_by(RECORDS.c.store)).all()
                self._sized = counters, {store: (count, int(size)) for store, count, size in rows}
        return self._sized[1]

    def close(self) -> None:
        """Close all connections, as before a fork; they are opened again when they are needed."""
        self._engine.dispose()

    def changed(self, connection: Connection, store: str, since: int) -> dict[str, int]:
        """Name -> number of the last write, of the records that were written after a number."""
        chosen = (RECORDS.c.store == store) & (RECORDS.c.changed > since)
        rows = connection.execute(select(RECORDS.c.name, RECORDS.c.changed).where(chosen))
        return {row.name: row.changed for row in rows}

    def contents(
        self, connection: Connection, store: str, names: Sequence[str]
    ) -> Iterator[tuple[str, int, str]]:
        """Name, number and content of those records that exist."""
        columns = select(RECORDS.c.name, RECORDS.c.changed, RECORDS.c.content)
        for start in range(0, len(names), PART):
            part = RECORDS.c.name.in_(names[start : start + PART])
            for row in connection.execute(columns.where((RECORDS.c.store == store) & part)).all():
                yield row.name, row.changed, row.content

    def locked(self, connection: Connection, store: str) -> tuple[int, int]:
        """The counters of a store, which is locked until the end of the transaction."""
        first = self.insert(STORES).values(name=store, changed=0, deleted=0)
        connection.execute(first.on_conflict_do_nothing())
        own = select(STORES).where(STORES.c.name == store).with_for_update()
        row = connection.execute(own).one()
        return row.changed, row.deleted

    def write(
        self, connection: Connection, store: str, number: int, contents: Mapping[str, str]
    ) -> None:
        """Write records, and replace those of their names."""
        for name, content in contents.items():
            self.remove(connection, store, name)
            row = {"store": store, "name": name, "changed": number, "content": content}
            connection.execute(RECORDS.insert(), row)

    def remove(self, connection: Connection, store: str, name: str) -> bool:
        """Remove a record; returns whether there was one."""
        chosen = (RECORDS.c.store == store) & (RECORDS.c.name == name)
        return bool(connection.execute(delete(RECORDS).where(chosen)).rowcount)

    def count(self, connection: Connection, store: str, numbers: Mapping[str, int]) -> None:
        """Set counters of a store."""
        own = update(STORES).where(STORES.c.name == store)
        connection.execute(own.values(**numbers))

    def _counters(self, connection: Connection) -> dict[str, tuple[int, int]]:
        rows = connection.execute(select(STORES)).all()
        return {row.name: (row.changed, row.deleted) for row in rows}

    def _before(self, is_write: bool) -> None:
        """Refuse at once who asks within a second after a failure to connect."""
        if monotonic() - self._failed_s < TURN_S:
            raise DatabaseAway

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
        return self._logged(problem, error)

    def _logged(self, problem: CannotStore, error: SQLAlchemyError) -> CannotStore:
        if type(problem) is not type(self._problem):
            log().error("the database cannot be used", why=self._said(error))
        self._problem = problem
        return problem

    def _said(self, error: SQLAlchemyError) -> str:
        said = " ".join(str(getattr(error, "orig", None) or error).split())[:500]
        password = self._engine.url.password
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


class FileDatabase(Database):
    """The SQLite database in a folder, in WAL mode.

    The file is made by the first write, with the records that versions before 0.3 kept there as
    files; in a folder that cannot be written, a copy of these is read. Each transaction has a
    connection of its own, because none may be used after a fork. When a write has returned, it
    survives a kill of the process and a power failure.

    Args:
        home: the folder FORERUN_HOME.
    """

    insert = staticmethod(sqlite.insert)
    reading: Mapping[str, Any] = {}
    writing: Mapping[str, Any] = {"begin": "BEGIN IMMEDIATE"}
    content_bytes = func.length(cast(RECORDS.c.content, LargeBinary))

    def __init__(self, home: Path) -> None:
        self._home, self._made, self._is_made = home, home.absolute() / FILE, False
        self._file = self._made
        self._copy: Path | None = None
        self._making = Lock()
        self._seen: object = None
        self._engine = create_engine(
            "sqlite://", creator=self._connected, poolclass=NullPool, hide_parameters=True
        )
        event.listen(self._engine, "begin", _begun)
        self._begin()

    def __repr__(self) -> str:
        return f"FileDatabase({self._home})"

    @property
    def problem(self) -> CannotStore | None:
        """What would prevent a write."""
        if self._is_gone:
            return CannotStore(
                f"Nothing was stored: {FILE} in the folder {HOME} was moved or deleted. Put it "
                "back, or restart to begin with an empty one; questions are answered meanwhile."
            )
        return obstacle(self._home, HOME)

    @property
    def _is_gone(self) -> bool:
        return self._is_made and not self._made.exists()

    def look_at_times(self) -> None:
        """Look, unless the file is as it was at the last look."""
        seen = self._signatures()
        if seen is None or seen != self._seen:
            self.look()
            self._seen = seen

    def _signatures(self) -> object:
        """What changes with every commit; None where that was a moment ago."""
        of_both = [_signature(file) for file in (self._file, self._log())]
        return None if None in of_both else of_both

    def _log(self) -> Path:
        return self._file.with_name(f"{FILE}-wal")

    def _before(self, is_write: bool) -> None:
        problem = self.problem
        if problem is not None and (is_write or self._is_gone):
            raise problem
        with self._making:
            file = self._made
            if not file.exists() and problem is None:
                with writing_to(HOME):
                    _make(file, self._home)
            elif not file.exists():
                file = self._copied()
            self._file, self._is_made = file, self._is_made or file == self._made

    def _copied(self) -> Path:
        """A database of the files in a folder that cannot be written; it ends with this object."""
        if self._copy is None or not self._copy.exists():
            folder = Path(mkdtemp(prefix="forerun-"))
            finalize(self, shutil.rmtree, folder, ignore_errors=True)
            _make(folder / FILE, self._home)
            self._copy = folder / FILE
        return self._copy

    def _connected(self) -> sqlite3.Connection:
        # Where nothing can be written, no file of locks can be made either.
        is_fixed = self.problem is not None and not self._log().exists()
        uri = f"{self._file.as_uri()}?{'immutable=1' if is_fixed else 'mode=rw'}"
        made = sqlite3.connect(
            uri, timeout=LOCK_S, isolation_level=None, check_same_thread=False, uri=True
        )
        made.execute("PRAGMA synchronous=FULL")
        return made

    def _failed(self, error: SQLAlchemyError, is_away: bool) -> CannotStore:
        code = getattr(getattr(error, "orig", None), "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            problem: CannotStore = DatabaseRefused(
                "Nothing was read or stored: other processes have been writing to the folder "
                f"FORERUN_HOME for over {LOCK_S} seconds. Ask again."
            )
        elif code == sqlite3.SQLITE_FULL:
            problem = disk_problem(OSError(ENOSPC, os.strerror(ENOSPC)), HOME)
        else:
            problem = self.problem or DatabaseRefused(
                f"Nothing was read or stored: {self._file} cannot be used ({self._said(error)}). "
                "Make it readable and writable, or put a copy from before in its place."
            )
        return self._logged(problem, error)


def _begun(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))


def _signature(file: Path) -> Signature | Literal[0]:
    """The signature of a file; 0 where it is absent, or empty as the log of those who only read."""
    try:
        return signature_of(file) if file.stat().st_size else 0
    except OSError:
        return 0


def _make(file: Path, home: Path) -> None:
    """Make a database file, whole, unless another process makes it first."""
    from forerun.service.stores.database.upgrading import fill

    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{FILE}.{token_hex(6)}{DRAFT_SUFFIX}")
    try:
        draft.touch(mode=0o600)
        fill(draft, home)
        with suppress(FileExistsError):
            os.link(draft, file)
    finally:
        draft.unlink(missing_ok=True)
    synced(file.parent)
