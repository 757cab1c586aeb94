"""The first tables: records, and a counter of changes for each store."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "forerun_stores",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("changed", sa.BigInteger, nullable=False),
        sa.Column("deleted", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "forerun_records",
        sa.Column("store", sa.String, primary_key=True),
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("changed", sa.BigInteger, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
    )
    op.create_index("forerun_records_changed", "forerun_records", ["store", "changed"])
