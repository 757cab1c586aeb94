"""The predictor of imported tables: metrics of networks, operators and tests of one table."""

from forerun.models.own_tables.table_boost import TableBoost

__all__ = ["TableBoost"]
