"""Arrival times and lengths of requests to language models: what a replay sends.

Nothing here is a measurement of a system, so that there is nothing to predict and no split.
"""

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

AZURE: Final = ("splitwise_code", "splitwise_conv")
"""Traces of two services of one week, with seconds since the first arrival."""
LENGTHS: Final = ("num_prefill_tokens", "num_decode_tokens")


class LlmTraces(PackedTables):
    """Four traces; no protocol."""

    name = "llm_traces"
    title = "arrival times and lengths of requests to language models"
    licence = "CC BY 4.0 (Azure LLM inference trace 2023); MIT, (c) Microsoft Corporation (others)"
    citation = "AzurePublicDataset, Splitwise, ISCA 2024; Vidur, MLSys 2024; APEX"
    published = "nothing is predicted"
    origin = "github.com/microsoft/vidur at 7d475133 and github.com/microsoft/apex_plus at 87690965"

    def tables(self) -> Mapping[str, "DataFrameSchema"]:
        """Schemas; arrivals in seconds or nanoseconds after the first, lengths in tokens."""
        import pandera.pandas as pa

        def tokens(*names: str) -> dict[str, Any]:
            return {name: number("int64", low=0) for name in names}

        azure = {"arrived_at": number(low=0), **tokens(*LENGTHS)}
        arxiv = {**tokens(*LENGTHS, "num_total_tokens"), "pd_ratio": number(low=0)}
        apex: dict[str, Any] = {name: text() for name in ("tokenizer_family", "trace")}
        apex |= tokens("prompt_tokens", "output_tokens", "arrival_offset_ns")
        schemas = {**dict.fromkeys(AZURE, azure), "arxiv_summarization": arxiv, "apex_traces": apex}
        return {name: pa.DataFrameSchema(columns) for name, columns in schemas.items()}

    def splits(self, bundle: Bundle) -> list[Split]:
        """None: nothing is measured."""
        return []

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """None: requests may repeat."""
        return check(bundle.table(bundle.tables()[0]), Quantities())
