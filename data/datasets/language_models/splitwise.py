"""Llama-2-70B and BLOOM-176B on DGX A100, H100 and power-capped H100.

One row of `perf_model` is a batch of requests of one length: time to process the prompts, time per
further token and end to end in milliseconds, and the shares of design power that were drawn, which
were measured on A100 alone.
"""

from typing import TYPE_CHECKING, Final

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.datasets.language_models.operator_splits import row_names
from forerun.data.datasets.packaged import PackedTables
from forerun.data.quality import Quantities, check
from forerun.data.split import Split, leave_values_out

if TYPE_CHECKING:
    import pandas as pd

RUNS: Final = "perf_model"
SIZES: Final = ("tensor_parallel", "prompt_size", "token_size", "batch_size")
QUERY: Final = ("model", "hardware", *SIZES)
TIMES: Final = ("prompt_time_ms", "token_time_ms", "e2e_time_ms")


class Splitwise(PackedTables, declared="splitwise"):
    """Leave one pair of model and hardware out, or one hardware."""

    def splits(self, bundle: Bundle) -> list[Split]:
        """`unseen_setup/MODEL x HARDWARE` and `unseen_device/HARDWARE`; the others train."""
        if not bundle.has(RUNS):
            return []
        runs = bundle.table(RUNS)
        derived = {"setup": row_names(runs, ("model", "hardware"))}
        protocols = {"unseen_setup": "setup", "unseen_device": "hardware"}
        return leave_values_out(RUNS, runs, protocols, query_columns=QUERY, derived=derived)

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """Doubtful rows: repeats of a row."""
        runs = bundle.table(RUNS)
        time = runs["e2e_time_ms"].to_numpy(dtype=np.float64)
        return check(runs, Quantities(time_ms=time), same=(*QUERY, *TIMES))
