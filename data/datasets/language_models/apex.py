"""Runs of vLLM and SGLang on eight H100, with products of a V100 and collectives of three GPUs.

One row of `e2e_h100x8` is a trace of requests replayed by one replica of a deployment: seconds to
the first token, per further token and of all requests together. `gemm_v100` and `comm` hold
microseconds of products and of collectives.
"""

from typing import TYPE_CHECKING, Final

from forerun.data.bundle import Bundle
from forerun.data.datasets.language_models.operator_splits import TimedOperators, row_names
from forerun.data.datasets.packaged import PackedTables
from forerun.data.split import Split, leave_values_out

if TYPE_CHECKING:
    pass

RUNS: Final = "e2e_h100x8"
DEPLOYMENT: Final = ("engine", "model", "dtype", "layout")
QUERY: Final = (*DEPLOYMENT, "replica", "trace", "arrival_rate_rps", "prompt_tokens")


class Apex(TimedOperators, PackedTables, declared="apex"):
    """Leave one deployment or one trace out; shapes and devices of operators.

    Sites are (n, k) of a product, and the members of a collective.
    """

    def splits(self, bundle: Bundle) -> list[Split]:
        """`unseen_deployment/NAME`, `unseen_trace/TRACE`, and those of `OperatorTable.splits`."""
        splits = []
        if bundle.has(RUNS):
            runs = bundle.table(RUNS)
            derived = {"deployment": row_names(runs, DEPLOYMENT)}
            protocols = {"unseen_deployment": "deployment", "unseen_trace": "trace"}
            splits += leave_values_out(RUNS, runs, protocols, query_columns=QUERY, derived=derived)
        return splits + super().splits(bundle)
