"""Runs of vLLM and SGLang on eight H100, with matrix products on a V100 and collectives.

One row of `e2e_h100x8` is a trace of requests replayed by one replica of a deployment: seconds to
the first token, per further token and for all requests together. `gemm_v100` and `comm` hold
microseconds of matrix products and of collectives on three GPUs.
"""

from collections.abc import Mapping
from typing import Final

from forerun.data.columns import Names
from forerun.data.datasets.language_models.operator_splits import TimedOperators, row_names
from forerun.data.datasets.packaged import PackedTables
from forerun.data.lazy import pd

RUNS: Final = "e2e_h100x8"
DEPLOYMENT: Final = ("engine", "model", "dtype", "layout")


class Apex(TimedOperators, PackedTables, declared="apex"):
    """Leave one deployment or one trace out; shapes and devices of operators.

    A site is (n, k) of a product, or the members of a collective.
    """

    def groups(self, rows: "pd.DataFrame") -> Mapping[str, Names]:
        """`deployment`: engine, model, number format and layout."""
        return {"deployment": row_names(rows, DEPLOYMENT)}


QUERY: Final = Apex.query
