"""Operators of language models timed on seven data-centre GPUs, with the power of three of them.

One row of `gemm`, `context_attention`, `generation_attention` and `moe` is one kernel or group of
kernels of a serving engine; `nccl` and `custom_allreduce` are collectives between two to eight GPUs
of a node. The tables `power_*` hold the same with mean power during the loop over the kernel (vLLM
0.22.0). The keys and values that a decoding step reads are `isl + step` tokens long.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.columns import Column
from forerun.data.datasets.language_models.operator_splits import OperatorTable
from forerun.data.datasets.packaged import PackedTables
from forerun.data.split import Split

if TYPE_CHECKING:
    import pandas as pd

SYSTEMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "a100_sxm": "ampere",
        "l40s": "ada",
        "h100_sxm": "hopper",
        "h200_sxm": "hopper",
        "b200_sxm": "blackwell",
        "gb200": "blackwell",
        "gb300": "blackwell",
    }
)
"""System -> generation of its GPU. Hopper's two have one die, so holding one out is no new chip."""

ELEMENT_BYTES: Final[Mapping[str, int]] = MappingProxyType({"half": 2, "bfloat16": 2, "int8": 1})
"""Type of the elements of a message -> bytes of each."""

_ORIGIN: Final = ("system", "framework", "version", "kernel_source")
_HEADS: Final = ("num_heads", "num_key_value_heads", "head_dim")
_TYPES: Final = ("attn_dtype", "kv_cache_dtype")
_EXPERTS: Final = ("hidden_size", "inter_size", "topk", "num_experts")
_SPREAD: Final = ("moe_tp_size", "moe_ep_size")
_ATTENTION: Final = (*_ORIGIN, "batch_size", "isl", "step", *_HEADS, "window_size", *_TYPES)
_SITE: Final = (*_HEADS, "window_size")


def _table(name: str, query: tuple[str, ...], site: tuple[str, ...]) -> OperatorTable:
    return OperatorTable(name, "system", query, site, SYSTEMS)


_GEMM: Final = (*_ORIGIN, "gemm_dtype", "m", "n", "k")
_MOE: Final = (*_ORIGIN, "moe_dtype", "num_tokens", *_EXPERTS, *_SPREAD, "distribution")
_NCCL: Final = (*_ORIGIN, "op_name", "nccl_dtype", "num_gpus", "message_size_elems")
_ALLREDUCE: Final = (*_ORIGIN, "backend", "allreduce_dtype", "num_gpus", "message_size_elems")

OPERATORS: Final[Mapping[str, OperatorTable]] = MappingProxyType(
    {
        table.name: table
        for table in (
            _table("gemm", _GEMM, ("n", "k")),
            _table("power_gemm", _GEMM, ("n", "k")),
            _table("context_attention", _ATTENTION, _SITE),
            _table("power_context_attention", _ATTENTION, _SITE),
            _table("generation_attention", _ATTENTION, _SITE),
            _table("power_generation_attention", _ATTENTION, _SITE),
            _table("moe", _MOE, _EXPERTS),
            _table("power_moe", _MOE, _EXPERTS),
            _table("nccl", _NCCL, ("op_name", "num_gpus")),
            _table("custom_allreduce", _ALLREDUCE, ("num_gpus",)),
        )
    }
)
"""Table -> its query and its sites: (n, k) of a product, heads and window of attention, dimensions
of the experts, members of a collective."""


class AiConfigurator(PackedTables, declared="aiconfigurator"):
    """Leave one system or one generation out, few rows of a system, shapes held out."""

    def splits(self, bundle: Bundle) -> list[Split]:
        """Those of `OperatorTable.splits` for each table that the bundle has."""
        return [
            split
            for name, table in OPERATORS.items()
            if bundle.has(name)
            for split in table.splits(bundle.table(name))
        ]

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """Doubtful rows of `gemm`, else of the first table that the bundle has."""
        name = next(name for name in OPERATORS if bundle.has(name))
        return OPERATORS[name].flags(bundle.table(name), "latency_ms")


def message_bytes(table: "pd.DataFrame") -> Column:
    """Bytes of the message of each of n rows of `nccl` or `custom_allreduce`.

    `message_size_elems` counts elements: 2^28 of half precision and 2^29 of one byte are both
    512 MiB.

    Raises:
        KeyError: an element type that `ELEMENT_BYTES` does not have.
    """
    types = table["nccl_dtype" if "nccl_dtype" in table else "allreduce_dtype"]
    widths = np.array([ELEMENT_BYTES[str(one)] for one in types], dtype=np.float64)
    return np.asarray(widths * table["message_size_elems"].to_numpy(dtype=np.float64))
