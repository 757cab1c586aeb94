"""Llama-2-70B and BLOOM-176B on DGX A100, H100 and power-capped H100.

One row of `perf_model` is a batch of requests of equal length: time to process the prompts, time
per further token and end-to-end time in milliseconds, and power as shares of the TDP,
which was measured only on the A100.
"""

from collections.abc import Mapping
from typing import Final

from forerun.data.columns import Names
from forerun.data.datasets.language_models.operator_splits import row_names
from forerun.data.datasets.packaged import PackedTables
from forerun.data.lazy import pd

RUNS: Final = "perf_model"
TIMES: Final = ("prompt_time_ms", "token_time_ms", "e2e_time_ms")


class Splitwise(PackedTables, declared="splitwise"):
    """Leave one pair of model and hardware out, or one hardware."""

    def groups(self, rows: "pd.DataFrame") -> Mapping[str, Names]:
        """`setup`: model and hardware."""
        return {"setup": row_names(rows, ("model", "hardware"))}


QUERY: Final = Splitwise.query
SIZES: Final = QUERY[2:]
"""Numeric columns of a query: ranks, lengths of prompt and answer, batch."""
