"""The tables: records, and a counter of changes for each store."""

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

from forerun.service.stores.database.problems import OtherSchema

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
