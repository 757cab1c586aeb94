"""Requests of a served language model as the router of llm-d saw them, one measured time a row."""

from typing import TYPE_CHECKING, Final

from forerun.data.bundle import Bundle
from forerun.data.datasets.packaged import PackedTables
from forerun.data.quality import Quantities, check
from forerun.data.split import Split

if TYPE_CHECKING:
    import pandas as pd

REQUESTS: Final = "requests"


class LlmdTraces(PackedTables, declared="llmd_traces"):
    """Two traces in the order in which the router learned from them; rows are scored in it."""

    def splits(self, bundle: Bundle) -> list[Split]:
        """None: a row is predicted from the rows before it."""
        return []

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """None: requests may repeat."""
        return check(bundle.table(REQUESTS), Quantities())
