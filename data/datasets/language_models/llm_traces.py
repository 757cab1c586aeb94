"""Arrival times and lengths of requests to language models: what a replay sends.

Nothing here is a measurement of a system, so that there is nothing to predict and no split.
"""

from forerun.data.datasets.packaged import PackedTables


class LlmTraces(PackedTables, declared="llm_traces"):
    """Four traces; no protocol."""
