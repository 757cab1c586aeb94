"""The tables: records, and a counter of changes for each store; and what can be wrong with them."""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    MetaData,
    String,
    Table,
    Text,
    inspect,
    text,
)

from forerun.data.errors import CannotStore, InputError


class BadDatabaseUrl(InputError):
    """FORERUN_DATABASE_URL is no address of a PostgreSQL database."""


class DatabaseAway(CannotStore):
    """The database does not answer now."""

    status = 503
    retry_after_s = 1

    def __init__(self) -> None:
        super().__init__(
            "Nothing was read or stored: the database of FORERUN_DATABASE_URL does not answer; the "
            "log says why. Ask again when it does; what is in memory is answered meanwhile."
        )


class DatabaseRefused(CannotStore):
    """The database answers, and refused what it was to do."""

    status = 503
    retry_after_s = 10


class OtherSchema(CannotStore):
    """The tables of the database are not those of this version of forerun."""

    slug, status = "database-schema", 503
    retry_after_s = 10

    def __init__(self, found: str | None, needed: str) -> None:
        if found is None:
            said = "has no tables of forerun yet: run `forerun database upgrade`"
        elif found < needed:
            said = f"has tables of version {found}, and this forerun needs version {needed}: run "
            said += "`forerun database upgrade`"
        else:
            said = f"has tables of version {found}, made by a newer forerun than this one, which "
            said += f"knows version {needed}: install the newer one"
        super().__init__(f"The database of FORERUN_DATABASE_URL {said}.")


VERSION: Final = "0001"
"""The version of the tables that this code reads and writes: the newest of `migrations`."""

METADATA: Final = MetaData()
STORES: Final = Table(
    "forerun_stores",
    METADATA,
    Column("name", String, primary_key=True),
    Column("changed", BigInteger, nullable=False),
    Column("deleted", BigInteger, nullable=False),
)
"""One row for each store: the number of transactions that changed it, and which of these was the
last to delete a record. Who writes locks the row, so the numbers are in the order of commits."""
RECORDS: Final = Table(
    "forerun_records",
    METADATA,
    Column("store", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("changed", BigInteger, nullable=False),
    Column("content", Text, nullable=False),
    Index("forerun_records_changed", "store", "changed"),
)
"""One row for each record: its content, and the number of the transaction that wrote it."""


def version_in(connection: Connection) -> str | None:
    """The version of the tables in a database; None where it has none."""
    if not inspect(connection).has_table("forerun_version"):
        return None
    found = connection.execute(text("SELECT version_num FROM forerun_version")).scalar()
    return None if found is None else str(found)


def check_version(connection: Connection) -> None:
    """Refuse a database whose tables are older or newer than this code.

    Raises:
        OtherSchema: they are; the message says what to do.
    """
    found = version_in(connection)
    if found != VERSION:
        raise OtherSchema(found, VERSION)
