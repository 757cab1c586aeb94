"""Operators of language models timed on A100, A800, H100, H800 and RTX PRO 6000.

`attention`, `linear` and `moe` hold the median and the scatter of each operator of one layer on
one rank, in milliseconds. `table` is the kind of file of the source: `*_kernel_only` is device time
alone. A800 and H800 are A100 and H100 with narrower links.
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

GENERATIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "a100": "ampere",
        "a800": "ampere",
        "h100": "hopper",
        "h800": "hopper",
        "rtx_pro_6000": "blackwell",
    }
)
"""Device -> generation of its GPU."""

_RANKS: Final = "num_tensor_parallel_workers"
_TEXTS: Final = ("device", "model", "table", "op")
_COMMON_TEXTS: Final = ("profiling_precision", "quant_signature", "measurement_type")
_LISTS: Final = (
    *("seq_lens", "prefill_seq_lens", "prefill_kv_cache_sizes", "decode_kv_cache_sizes"),
    *("is_mixed_batch", "mode"),
)
_ATTENTION_SITE: Final = ("n_embd", "n_q_head", "n_kv_head", _RANKS)
_BATCH: Final = ("batch_size", "prefill_chunk_size", "kv_cache_size")
_CHUNK: Final = ("total_tokens", "chunk_start_token", "chunk_end_token")
_LINEAR_SITE: Final = ("n_head", "n_kv_head", "n_embd", "n_expanded_embd", _RANKS)
_SHARED: Final = ("share_expert_dim", "share_q_dim")
_MOE_SITE: Final = (
    *("num_experts", "router_topk", "hidden_dim", "expert_hidden_dim"),
    *("expert_parallel_size", _RANKS),
)
_LOAD: Final = ("load_imbalance_cv", "max_load_ratio", "seed")
_ROUTING: Final = ("load_distribution", "routing_runtime_path", "gating_runtime_context_impl")

TABLES: Final[Mapping[str, OperatorTable]] = MappingProxyType(
    {
        name: OperatorTable(
            name, "device", (*_TEXTS, *_COMMON_TEXTS, *site, *rest), site, GENERATIONS
        )
        for name, site, rest in (
            ("attention", _ATTENTION_SITE, ("max_model_len", *_BATCH, *_CHUNK, *_LISTS)),
            ("linear", _LINEAR_SITE, ("vocab_size", "num_tokens", *_SHARED, "attn_output_gate")),
            ("moe", _MOE_SITE, ("num_tokens", *_LOAD, *_ROUTING)),
        )
    }
)
"""Table -> its query and its sites, which are the dimensions of a layer on one rank."""


class FrontierSim(PackedTables, declared="frontier_sim"):
    """Leave one device or one generation out, few rows of a device, dimensions held out."""

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
        return TABLES[name].flags(bundle.table(name), "median_ms")
