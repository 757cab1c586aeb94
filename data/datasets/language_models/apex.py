"""Runs of vLLM and SGLang on eight H100, with products of a V100 and collectives of three GPUs.

One row of `e2e_h100x8` is a trace of requests replayed by one replica of a deployment: seconds to
the first token, per further token and of all requests together. `gemm_v100` and `comm` hold
microseconds of products and of collectives.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from forerun.data.bundle import Bundle
from forerun.data.datasets.language_models.operator_splits import OperatorTable, row_names
from forerun.data.datasets.packaged import PackedTables
from forerun.data.split import Split, leave_values_out

if TYPE_CHECKING:
    import pandas as pd

RUNS: Final = "e2e_h100x8"
DEPLOYMENT: Final = ("engine", "model", "dtype", "layout")
QUERY: Final = (*DEPLOYMENT, "replica", "trace", "arrival_rate_rps", "prompt_tokens")

OPERATORS: Final[Mapping[str, OperatorTable]] = MappingProxyType(
    {
        "gemm_v100": OperatorTable("gemm_v100", "gpu", ("gpu", "dtype", "m", "k", "n"), ("n", "k")),
        "comm": OperatorTable(
            "comm",
            "gpu",
            ("gpu", "num_nodes", "num_gpus_per_node", "dtype", "size_kb", "collective"),
            ("collective", "num_nodes", "num_gpus_per_node"),
        ),
    }
)
"""Table -> its query and its sites: (n, k) of a product, members of a collective."""


class Apex(PackedTables, declared="apex"):
    """Leave one deployment or one trace out; shapes and devices of operators."""

    def splits(self, bundle: Bundle) -> list[Split]:
        """`unseen_deployment/NAME`, `unseen_trace/TRACE`, and those of `OperatorTable.splits`."""
        splits = []
        if bundle.has(RUNS):
            runs = bundle.table(RUNS)
            derived = {"deployment": row_names(runs, DEPLOYMENT)}
            protocols = {"unseen_deployment": "deployment", "unseen_trace": "trace"}
            splits += leave_values_out(RUNS, runs, protocols, query_columns=QUERY, derived=derived)
        for name, table in OPERATORS.items():
            if bundle.has(name):
                splits += table.splits(bundle.table(name))
        return splits

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """Doubtful rows of `gemm_v100`, else of `comm`: repeats, and times of no microsecond."""
        name = next(name for name in OPERATORS if bundle.has(name))
        return OPERATORS[name].flags(bundle.table(name), "time_us", 1e-3)
