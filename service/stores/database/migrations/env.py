"""Alembic runs this to take the steps, on the connection that `upgraded` gives it."""

from alembic import context

from forerun.service.stores.database.tables import METADATA

if hasattr(context, "config"):  # which it has while Alembic runs this, and not on an import
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=METADATA,
        version_table="forerun_version",
    )
    with context.begin_transaction():
        context.run_migrations()
