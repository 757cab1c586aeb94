"""Requests of a served language model as the router of llm-d saw them, one measured time a row."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from forerun.data.bundle import Bundle
from forerun.data.datasets.language_models.packed_tables import PackedTables
from forerun.data.quality import Quantities, check
from forerun.data.schema import number, text
from forerun.data.split import Split

if TYPE_CHECKING:
    import pandas as pd
    from pandera.pandas import DataFrameSchema

REQUESTS: Final = "requests"


class LlmdTraces(PackedTables):
    """Two traces in the order in which the router learned from them; rows are scored in it."""

    name = "llmd_traces"
    title = "times of requests to a served language model, with the state that its router saw"
    licence = "Apache-2.0"
    citation = "llm-d, github.com/llm-d/llm-d-latency-predictor"
    published = "no prediction; llm-d's predictor is fitted again to the same rows"
    origin = "github.com/llm-d/llm-d-latency-predictor at 1808b5b1, benchmarks/traces"

    def tables(self) -> Mapping[str, "DataFrameSchema"]:
        """Schema of the requests; times in milliseconds, shares from 0 to 1."""
        import pandera.pandas as pa

        columns: dict[str, Any] = {"trace": text(), "kind": text(values=("ttft", "tpot"))}
        counts = ("row", "input_tokens", "waiting", "running", "prefill_tokens_in_flight")
        columns |= {name: number("int64", low=0) for name in counts}
        columns |= {name: number(low=0, high=1) for name in ("kv_cache_share", "prefix_share")}
        columns["value_ms"] = number(above=0)
        return {REQUESTS: pa.DataFrameSchema(columns)}

    def splits(self, bundle: Bundle) -> list[Split]:
        """None: a row is predicted from the rows before it."""
        return []

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """None: requests may repeat."""
        return check(bundle.table(REQUESTS), Quantities())
