"""Layers and attention of language models timed in vLLM and PyTorch on four GPUs.

The tables of vLLM (RTX PRO 6000) are in microseconds; those of the earlier profiler (A6000, H100,
RTX 3090), `v0_layers` and `v0_attention`, in nanoseconds and milliseconds. All are of one rank.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from forerun.data.bundle import Bundle
from forerun.data.datasets.language_models.operator_splits import OperatorTable
from forerun.data.datasets.packaged import PackedTables
from forerun.data.split import Split

if TYPE_CHECKING:
    import pandas as pd

_WHERE: Final = ("device", "model", "tp")
_BATCH: Final = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
_CACHE: Final = ("batch_size", "prefill_chunk_size", "kv_cache_size", "is_prefill")
DECODE_MS: Final = "time_stats.attn_decode.median"


def _table(name: str, site: tuple[str, ...], *rest: str) -> OperatorTable:
    sites = ("model", "tp", *site)
    return OperatorTable(name, "device", (*_WHERE, *site, *rest), sites)


TABLES: Final[Mapping[str, OperatorTable]] = MappingProxyType(
    {
        table.name: table
        for table in (
            _table("attention", (), *_BATCH),
            _table("dense", ("layer",), "tokens"),
            _table("per_sequence", ("layer",), "sequences"),
            _table("moe", ("activated_experts",), "tokens"),
            _table("v0_attention", (), *_CACHE),
            _table("v0_layers", ("layer_name",), "input"),
        )
    }
)
"""Table -> its query and its sites: one layer of one model on so many ranks."""

TIMES: Final[Mapping[str, tuple[str, float]]] = MappingProxyType(
    {
        **dict.fromkeys(("attention", "dense", "per_sequence", "moe"), ("time_us", 1e-3)),
        "v0_attention": (DECODE_MS, 1.0),
        "v0_layers": ("latency_ns", 1e-6),
    }
)
"""Table -> column of the time, and milliseconds in its unit. `v0_attention` has the time of prefill
in another column."""


class LlmServingSim(PackedTables, declared="llmservingsim"):
    """Leave one device out, few rows of a device, layers of models held out."""

    def splits(self, bundle: Bundle) -> list[Split]:
        """Those of `OperatorTable.splits` for each table that the bundle has."""
        return [
            split
            for name, table in TABLES.items()
            if bundle.has(name)
            for split in table.splits(bundle.table(name))
        ]

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """Doubtful rows of `attention`, else of the first table that the bundle has."""
        name = next(name for name in TABLES if bundle.has(name))
        return TABLES[name].flags(bundle.table(name), *TIMES[name])
