"""Arrival times and lengths of requests to language models: what a replay sends.

Nothing here is a measurement of a system, so that there is nothing to predict and no split.
"""

from typing import TYPE_CHECKING

from forerun.data.bundle import Bundle
from forerun.data.datasets.packaged import PackedTables
from forerun.data.quality import Quantities, check
from forerun.data.split import Split

if TYPE_CHECKING:
    import pandas as pd


class LlmTraces(PackedTables, declared="llm_traces"):
    """Four traces; no protocol."""

    def splits(self, bundle: Bundle) -> list[Split]:
        """None: nothing is measured."""
        return []

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """None: requests may repeat."""
        return check(bundle.table(bundle.tables()[0]), Quantities())
