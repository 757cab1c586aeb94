"""Bring the tables of a database to the version of this code."""

from alembic import command
from alembic.config import Config
from sqlalchemy import text

from forerun.service.stores.database.connections import Database
from forerun.service.stores.database.problems import OtherSchema
from forerun.service.stores.database.tables import VERSION, version_in

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
