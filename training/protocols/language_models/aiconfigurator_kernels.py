"""Tables of AIConfigurator as measured kernels: attention, experts and collectives."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

import numpy as np
import pandas as pd

from forerun.data.device import DeviceCatalog
from forerun.data.language_models.deployment import EngineName
from forerun.data.language_models.kernel import (
    AttentionKernel,
    CollectiveKernel,
    CollectiveName,
    ExpertsKernel,
    ProductFormat,
)
from forerun.training.protocols.language_models.kernel_rows import KernelRows

Phase = Literal["prefill", "decode"]
DEVICES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "a100_sxm": "a100-sxm-80gb",
        "h100_sxm": "h100-sxm-80gb",
        "h200_sxm": "h200-sxm-141gb",
        "l40s": "l40s",
        "b200_sxm": "b200-sxm-180gb",
        "gb200": "gb200-186gb",
        "gb300": "gb300-279gb",
    }
)
"""System of the tables -> name in the catalog."""
FORMATS: Final[Mapping[str, ProductFormat]] = MappingProxyType(
    {
        "bfloat16": "bf16",
        "fp8": "fp8",
        "fp8_block": "fp8_block",
        "nvfp4": "nvfp4",
        "int4_wo": "int4",
        "w4a16_mxfp4": "mxfp4",
        "w4a8_mxfp4_mxfp8": "mxfp4_mxfp8",
    }
)
"""Type of the tables -> number format."""
ENGINES: Final[Mapping[str, EngineName]] = MappingProxyType(
    {"sglang": "sglang", "vllm": "vllm", "trtllm": "trtllm", "other": "other"}
)
ATTENTION_TABLES: Final = ("context_attention", "generation_attention")
_EXPERTS: Final = (
    "num_tokens",
    "hidden_size",
    "inter_size",
    "num_experts",
    "topk",
    "moe_tp_size",
    "moe_ep_size",
)
ROWS_READ: Final = 12_000
"""Most rows of a table that are read for one GPU, engine and number format."""
_ELEMENT_BYTES: Final = {"half": 2, "bfloat16": 2, "int8": 1}
_OPERATIONS: Final[Mapping[str, CollectiveName]] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
}
_SKEWED: Final = "power_law_"


def attention_rows(frame: pd.DataFrame, catalog: DeviceCatalog, table: str) -> KernelRows:
    """Rows of `context_attention` or `generation_attention` as measured kernels.

    Args:
        frame: the table.
        catalog: spec sheets.
        table: its name.
    """
    frame = _thinned(frame, ("system", "framework", "attn_dtype", "kv_cache_dtype"))
    phase: Phase = "decode" if table == "generation_attention" else "prefill"
    kernels = attention_kernels(frame, phase)
    sites = [f"{k.query_heads} {k.key_value_heads} {k.head_dim} {k.window}" for k in kernels]
    return _rows(kernels, frame, catalog, sites, f"{phase}_")


def attention_kernels(frame: pd.DataFrame, phase: Phase) -> list[AttentionKernel]:
    """The kernel of each row; the cache of a decoding step holds `isl + step` tokens in all.

    Args:
        frame: table of attention.
        phase: which of both tables it is.
    """
    names = ("batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim")
    windows = frame["window_size"] if "window_size" in frame else pd.Series(0, frame.index)
    windows = windows.fillna(0).astype(int)
    formats = (frame[name].astype(str).map(FORMATS) for name in ("attn_dtype", "kv_cache_dtype"))
    columns = zip(*(frame[name].tolist() for name in names), windows, *formats, strict=True)
    return [
        AttentionKernel(batch, tokens, step, heads, keys, width, phase, window or None, form, cache)
        for batch, tokens, step, heads, keys, width, window, form, cache in columns
    ]


def experts_rows(frame: pd.DataFrame, catalog: DeviceCatalog) -> KernelRows:
    """Rows of `moe` as measured kernels.

    Args:
        frame: the table.
        catalog: spec sheets.
    """
    frame = _thinned(frame, ("system", "framework", "moe_dtype"))
    kernels = experts_kernels(frame)
    sites = [f"{k.hidden_size} {k.width} {k.experts} {k.experts_per_token}" for k in kernels]
    return _rows(kernels, frame, catalog, sites, "experts_")


def experts_kernels(frame: pd.DataFrame) -> list[ExpertsKernel]:
    """The kernel of each row; the exponent of the experts' loads stands in `distribution`.

    Args:
        frame: table of experts.
    """
    kinds = frame["distribution"].astype(str)
    skews = [float(kind.removeprefix(_SKEWED)) if _SKEWED in kind else 0.0 for kind in kinds]
    formats = frame["moe_dtype"].astype(str).map(FORMATS)
    columns = zip(*(frame[name].tolist() for name in _EXPERTS), skews, formats, strict=True)
    return [ExpertsKernel(*values) for values in columns]


def collective_rows(nccl: pd.DataFrame, custom: pd.DataFrame, catalog: DeviceCatalog) -> KernelRows:
    """Rows of `nccl` and `custom_allreduce` as measured kernels, the median of all versions.

    The message is that of the whole operation in bytes: the tables count elements. Kernels of
    TensorRT-LLM are launched like those that graphs replay.

    Args:
        nccl: operations of NCCL.
        custom: sums by kernels of engines.
        catalog: spec sheets.
    """
    library = nccl.assign(library="nccl", framework="other", dtype=nccl["nccl_dtype"].astype(str))
    own = custom.assign(op_name="all_reduce", dtype=custom["allreduce_dtype"].astype(str))
    source = own["kernel_source"].astype(str)
    own["library"] = np.where(source.str.contains("eager"), "custom", "custom_graph")
    own["framework"] = own["framework"].astype(str).where(source != "TRTLLM", "trtllm")
    names = ["system", "framework", "library", "op_name", "num_gpus", "message_bytes"]
    both = pd.concat([library, own], ignore_index=True)
    both["message_bytes"] = both["message_size_elems"] * both["dtype"].map(_ELEMENT_BYTES)
    both = both.astype(dict.fromkeys(names[:4], str))
    frame = both.groupby(names)["latency_ms"].median().reset_index()
    operations = frame["op_name"].map(_OPERATIONS)
    columns = zip(
        operations, frame["num_gpus"], frame["message_bytes"], frame["library"], strict=True
    )
    kernels = [CollectiveKernel(one, int(n), int(size), used) for one, n, size, used in columns]
    sites = [f"{kernel.operation} {kernel.devices}" for kernel in kernels]
    return _rows(kernels, frame, catalog, sites, "collective_")


def _thinned(frame: pd.DataFrame, names: tuple[str, ...]) -> pd.DataFrame:
    """At most `ROWS_READ` rows of each group, drawn with a fixed seed."""
    drawn = frame.sample(frac=1.0, random_state=0)
    kept = drawn.groupby(list(names), observed=True).head(ROWS_READ)
    return kept.sort_index().reset_index(drop=True)


def _rows(
    kernels: list[AttentionKernel] | list[ExpertsKernel] | list[CollectiveKernel],
    frame: pd.DataFrame,
    catalog: DeviceCatalog,
    sites: list[str],
    prefix: str,
) -> KernelRows:
    sheets = {system: catalog.get(name) for system, name in DEVICES.items()}
    return KernelRows.of(
        kernels,
        frame["framework"].astype(str).map(ENGINES).tolist(),
        frame["system"].astype(str).map(sheets).tolist(),
        frame["latency_ms"].to_numpy(dtype=np.float64),
        np.array(sites, dtype=np.str_),
        prefix=prefix,
    )
