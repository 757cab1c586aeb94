"""Bring the tables of a database to this version, and copy the records of a folder into them."""

from collections.abc import Iterator
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, NullPool, create_engine, select, text

from forerun.data.file_store import DRAFT_SUFFIX
from forerun.service.stores.database.connections import Database, FileDatabase
from forerun.service.stores.database.tables import RECORDS, STORES, VERSION, OtherSchema, version_in
from forerun.service.stores.places import FOLDERS, TENANTS, log_damage

SCRIPTS = "forerun.service.stores.database:migrations"
LOCK = 7_036_874_417_766
"""Any number of its own: of several upgrades at once, one runs and the others wait for it."""


def configuration() -> Config:
    """Alembic's configuration, without a file."""
    config = Config()
    config.set_main_option("script_location", SCRIPTS)
    config.set_main_option("path_separator", "os")
    return config


def upgraded(database: Database) -> tuple[str | None, str]:
    """Create the tables or bring them to this version, in one transaction; it may be repeated.

    Returns:
        The version before, None where there were no tables, and the version now.

    Raises:
        OtherSchema: the tables are newer than this code.
        DatabaseAway, DatabaseRefused: nothing was changed.
    """
    with database.transaction() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
        before = version_in(connection)
        if before is not None and before > VERSION:
            raise OtherSchema(before, VERSION)
        _upgrade(connection)
    return before, VERSION


def _upgrade(connection: Connection) -> None:
    config = configuration()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def fill(file: Path, home: Path) -> None:
    """Make the tables in an empty file, with the records that a folder holds as files.

    Raises:
        OSError: a file cannot be read or written.
    """
    engine = create_engine(f"sqlite:///{file}", poolclass=NullPool)
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode=WAL")
        _upgrade(connection)
        for store, records in _in_folders(home):
            connection.execute(STORES.insert(), {"name": store, "changed": 1, "deleted": 0})
            of_all = {"store": store, "changed": 1}
            rows = [{**of_all, "name": name, "content": own} for name, own in records.items()]
            if rows:
                connection.execute(RECORDS.insert(), rows)
        connection.commit()


def _in_folders(home: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Each store that is kept as files, and the texts of its records."""
    bases = (home, *(home / TENANTS).glob("*/"))
    roots = [base / name for base in bases for name in FOLDERS if (base / name).is_dir()]
    for folder in sorted(each for root in roots for each in (root, *root.rglob("*/"))):
        texts = {}
        for file in sorted(folder.iterdir()):
            if file.is_file() and not file.name.endswith(DRAFT_SUFFIX):
                try:
                    texts[file.name] = file.read_text(encoding="utf-8")
                except (OSError, UnicodeDecodeError) as error:
                    log_damage(file, error)
        yield folder.relative_to(home).as_posix(), texts


def imported(home: Path, database: Database) -> dict[str, int]:
    """Copy what the database does not hold under the same name, as a whole.

    Args:
        home: folder FORERUN_HOME.
        database: where to copy to; its tables must be there.

    Returns:
        Number of records that were copied by store.

    Raises:
        CannotStore: the database does not answer, or has other tables.
    """
    with FileDatabase(home).transaction(is_write=False) as connection:
        stores = connection.execute(select(STORES.c.name).order_by(STORES.c.name)).scalars().all()
        found = {
            store: {
                row.name: row.content
                for row in connection.execute(select(RECORDS).where(RECORDS.c.store == store))
            }
            for store in stores
        }
    copied = {}
    with database.transaction() as connection:
        for store, contents in found.items():
            number = database.locked(connection, store)[0] + 1
            new = contents.keys() - database.changed(connection, store, 0).keys()
            database.write(connection, store, number, {name: contents[name] for name in new})
            database.count(connection, store, {"changed": number})
            copied[store] = len(new)
    return copied
