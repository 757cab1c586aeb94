"""Requests of a served language model as the router of llm-d saw them, one measured time a row."""

from typing import Final

from forerun.data.datasets.packaged import PackedTables

REQUESTS: Final = "requests"


class LlmdTraces(PackedTables, declared="llmd_traces"):
    """Two traces in the order in which the router learned from them; rows are scored in it."""
