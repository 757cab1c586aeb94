"""Bring the tables of a database to this version, and copy the files of a folder into them."""

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from sqlalchemy import text

from forerun.data.file_store import DRAFT_SUFFIX
from forerun.service.stores.database.connections import Database
from forerun.service.stores.database.store import DatabaseStore
from forerun.service.stores.database.tables import VERSION, OtherSchema, version_in
from forerun.service.stores.places import TENANTS, DatabasePlace

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
        config = configuration()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    return before, VERSION


STORES: Final = ("devices", "graphs", "measurements", "keys")
"""Folders of the stores, of each tenant too; those within them are stores too."""


def imported(home: Path, database: Database) -> tuple[dict[str, int], list[str]]:
    """Copy what the database does not hold under the same name; each store as a whole.

    Args:
        home: folder FORERUN_HOME.
        database: where to copy to; its tables must be there.

    Returns:
        Number of records that were copied by store, and files that could not be read.

    Raises:
        CannotStore: the database does not answer, or has other tables.
    """
    copied: dict[str, int] = {}
    left_out: list[str] = []
    bases = (home, *(home / TENANTS).glob("*/"))
    roots = [base / name for base in bases for name in STORES if (base / name).is_dir()]
    for folder in sorted(each for root in roots for each in (root, *root.rglob("*/"))):
        name = folder.relative_to(home).as_posix()
        texts = _texts(folder, left_out)
        copied[name] = _copied(DatabasePlace(database, name), texts)
    return copied, left_out


def _texts(folder: Path, left_out: list[str]) -> dict[str, str]:
    texts = {}
    for file in sorted(folder.iterdir()):
        if file.is_file() and not file.name.endswith(DRAFT_SUFFIX):
            try:
                texts[file.name] = file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                left_out.append(str(file))
    return texts


def _copied(place: DatabasePlace, texts: dict[str, str]) -> int:
    records = DatabaseStore(place, str, lambda name, content: content.decode(), room=1)
    with records.writing():
        new = texts.keys() - records.names()
        for name in sorted(new):
            records.put(name, texts[name])
    return len(new)
