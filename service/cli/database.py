"""`forerun database`: create and bring up to date the tables in FORERUN_DATABASE_URL."""

from typing import TYPE_CHECKING

import typer

from forerun.service.cli.commands import DescribedCommands
from forerun.service.settings import Settings

if TYPE_CHECKING:
    from forerun.service.stores.database.connections import Database

app = DescribedCommands(
    no_args_is_help=True,
    help="Create the tables of the database that several replicas share, and fill them.",
)


@app.command("upgrade")
def upgrade() -> None:
    """Create or upgrade the tables of FORERUN_DATABASE_URL; it is safe to repeat."""
    database = _database()
    from forerun.service.stores.database.upgrading import upgraded

    before, now = upgraded(database)
    typer.echo(
        f"the tables are of version {now} already"
        if before == now
        else f"the tables are of version {now} now; there were none before"
        if before is None
        else f"the tables are of version {now} now, and were of {before}"
    )


@app.command("import")
def import_files() -> None:
    """Copy measurements, devices, graphs and keys of FORERUN_HOME into the database.

    Records that the database already has are kept.
    """
    database = _database()
    from forerun.service.stores.database.upgrading import imported

    for store, number in imported(Settings.load().home, database).items():
        typer.echo(f"{store}: {number:,} copied")


def _database() -> "Database":
    from forerun.data.errors import InputError
    from forerun.service.stores.places import database_of

    settings = Settings.load()
    if settings.database_url is None:
        raise InputError(
            "Set FORERUN_DATABASE_URL to the address of a PostgreSQL database, "
            "postgresql://USER:PASSWORD@HOST:PORT/DATABASE."
        )
    return database_of(settings)
