"""Requests to a served language model as llm-d's router saw them, one measured time per row."""

from typing import Final

from forerun.data.datasets.packaged import PackedTables

REQUESTS: Final = "requests"


class LlmdTraces(PackedTables, declared="llmd_traces"):
    """Two traces in the order in which the router learned from them; rows are scored in order."""
