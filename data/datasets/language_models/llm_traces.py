"""Arrival times and lengths of requests to language models, for replays.

They are not measurements of a system, so there is nothing to predict and no split.
"""

from forerun.data.datasets.packaged import PackedTables


class LlmTraces(PackedTables, declared="llm_traces"):
    """Four traces; no protocol."""
