"""Runs of vLLM and SGLang on eight H100, with products of a V100 and collectives of three GPUs.

One row of `e2e_h100x8` is a trace of requests replayed by one replica of a deployment: seconds to
the first token, per further token and of all requests together. `gemm_v100` and `comm` hold
microseconds of products and of collectives.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from forerun.data.bundle import Bundle
from forerun.data.datasets.language_models.operator_splits import OperatorTable, row_names
from forerun.data.datasets.language_models.packed_tables import PackedTables
from forerun.data.schema import number, text
from forerun.data.split import Split, leave_values_out

if TYPE_CHECKING:
    import pandas as pd
    from pandera.pandas import DataFrameSchema

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


class Apex(PackedTables):
    """Leave one deployment or one trace out; shapes and devices of operators."""

    name = "apex"
    title = "serving runs on eight H100, products of a V100, collectives of three GPUs"
    licence = "MIT, (c) Microsoft Corporation"
    citation = "APEX, github.com/microsoft/apex_plus"
    published = "mean latency of a plan within 10.7 % on average"
    origin = "github.com/microsoft/apex_plus at 8769096536a34e8b3010fd444021f13858663a93"

    def tables(self) -> Mapping[str, "DataFrameSchema"]:
        """Schemas; seconds in `e2e_h100x8`, microseconds in the others, messages in KiB."""
        import pandera.pandas as pa

        runs: dict[str, Any] = {name: text() for name in (*DEPLOYMENT, "trace")}
        runs |= {"replica": number(low=0, nullable=True), "arrival_rate_rps": number(above=0)}
        runs |= {n: number(above=0, nullable=True) for n in ("prompt_tokens", "tpot_s")}
        runs |= {n: number(above=0) for n in ("output_tokens", "ttft_s", "total_latency_s")}
        product: dict[str, Any] = {name: text() for name in ("gpu", "dtype")}
        message = {**product, "collective": text(), "time_us": number(low=0)}
        message |= {n: number("int64", above=0) for n in ("num_nodes", "num_gpus_per_node")}
        message["size_kb"] = number("int64", low=0)
        product |= {name: number("int64", above=0) for name in ("m", "k", "n", "time_us")}
        schemas = {RUNS: runs, "gemm_v100": product, "comm": message}
        return {name: pa.DataFrameSchema(columns) for name, columns in schemas.items()}

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
