"""Llama-2-70B and BLOOM-176B on DGX A100, H100 and power-capped H100.

One row of `perf_model` is a batch of requests of one length: time to process the prompts, time per
further token and end to end in milliseconds, and the shares of design power that were drawn, which
were measured on A100 alone.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.datasets.language_models.operator_splits import row_names
from forerun.data.datasets.language_models.packed_tables import PackedTables
from forerun.data.quality import Quantities, check
from forerun.data.schema import number, text
from forerun.data.split import Split, leave_values_out

if TYPE_CHECKING:
    import pandas as pd
    from pandera.pandas import DataFrameSchema

RUNS: Final = "perf_model"
SIZES: Final = ("tensor_parallel", "prompt_size", "token_size", "batch_size")
QUERY: Final = ("model", "hardware", *SIZES)
TIMES: Final = ("prompt_time_ms", "token_time_ms", "e2e_time_ms")
POWER_SHARES: Final = ("peak_power_frac_tdp", "avg_power_frac_tdp")


class Splitwise(PackedTables):
    """Leave one pair of model and hardware out, or one hardware."""

    name = "splitwise"
    title = "two language models on DGX A100, H100 and power-capped H100"
    licence = "MIT, (c) 2024 Pratyush Patel"
    citation = "Splitwise, ISCA 2024, github.com/Mutinifni/splitwise-sim"
    published = "none that was checked"
    origin = "github.com/Mutinifni/splitwise-sim at 8f99e7d"

    def tables(self) -> Mapping[str, "DataFrameSchema"]:
        """Schema of `perf_model`; times in milliseconds, sizes in tokens and requests."""
        import pandera.pandas as pa

        columns: dict[str, Any] = {name: text() for name in ("model", "hardware")}
        columns |= {name: number("int64", above=0) for name in SIZES}
        columns |= {name: number(above=0) for name in TIMES}
        columns |= {name: number(low=0, nullable=True) for name in POWER_SHARES}
        return {RUNS: pa.DataFrameSchema(columns)}

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
