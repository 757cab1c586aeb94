"""Power of kernels that AIConfigurator measured in loops on three GPUs, each of them held out."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.columns import Column, groups_of
from forerun.data.device import DeviceCatalog
from forerun.data.language_models.kernel import (
    GemmKernel,
    KernelShape,
    LlmKernel,
)
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.llm_kernels.families import family_of
from forerun.training.protocols.language_models.aiconfigurator_kernels import (
    DEVICES,
    FORMATS,
    attention_kernels,
    experts_kernels,
)
from forerun.training.protocols.protocol import Fold, Task

POWER_TABLES: Final = (
    "power_gemm",
    "power_context_attention",
    "power_generation_attention",
    "power_moe",
)
POWER_ROWS: Final = 3000
"""Most rows of one GPU and family; tables have up to 50,000 of each GPU."""


def power_rows(bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
    """Kernels with `power_w`, and the groups `device` and `part` (the family).

    Args:
        bundle: tables of the dataset.
        catalog: spec sheets.
    """
    rows = Measurements([], {"power_w": np.zeros(0)}, {})
    for table in filter(bundle.has, POWER_TABLES):
        rows = rows + _of_table(bundle.table(table), catalog, table)
    return rows


def power_folds(bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
    """Each GPU is held out, with one task for each family.

    The baseline draws the median share of the design power in the training rows of the family.

    Args:
        bundle: tables of the dataset.
        catalog: spec sheets.
    """
    rows = power_rows(bundle, catalog)
    if not len(rows):
        return
    names = rows.groups["device"]
    for device in np.unique(names).tolist():
        train, held_out = rows.take(names != device), rows.take(names == device)
        shares = _median_shares(train)
        tasks = [
            _task(held_out.take(np.array(own)), part, device, shares.get(part, np.nan))
            for part, own in groups_of(held_out.groups["part"].tolist()).items()
        ]
        yield Fold("power_unseen_device", train, tasks, source="aiconfigurator/power")


def _task(held_out: Measurements, part: str, device: str, share: float) -> Task:
    constant = {"constant_share": share * _design_w(held_out)}
    name = f"power_unseen_device/{part}"
    return Task(name, "power_w", held_out, device=device, baselines=constant)


def _median_shares(rows: Measurements) -> Mapping[str, float]:
    shares = rows.values["power_w"] / _design_w(rows)
    parts = groups_of(rows.groups["part"].tolist())
    return {part: float(np.median(shares[own])) for part, own in parts.items()}


def _design_w(rows: Measurements) -> Column:
    return np.array([query.device.tdp_w or np.nan for query in rows.queries])


def _of_table(frame: pd.DataFrame, catalog: DeviceCatalog, table: str) -> Measurements:
    drawn = frame.sample(frac=1.0, random_state=0)
    types = [name for name in _TYPES[table] if name in frame]
    frame = drawn.groupby(["system", *types], observed=True).head(POWER_ROWS).sort_index()
    sheets = {system: catalog.get(name) for system, name in DEVICES.items()}
    devices = frame["system"].astype(str).map(sheets)
    kernels = _kernels(frame, table)
    queries = [
        Query(LlmKernel(kernel, "vllm"), device)
        for kernel, device in zip(kernels, devices, strict=True)
    ]
    parts = [family_of(kernel) for kernel in kernels]
    groups = {
        "device": np.array([query.device.name for query in queries], dtype=np.str_),
        "part": np.array(parts, dtype=np.str_),
        "op_class": np.array([part.split("/")[0] for part in parts], dtype=np.str_),
    }
    return Measurements(queries, {"power_w": frame["power_w"].to_numpy(dtype=np.float64)}, groups)


_TYPES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "power_gemm": ("gemm_dtype",),
        "power_context_attention": ("attn_dtype", "kv_cache_dtype"),
        "power_generation_attention": ("attn_dtype", "kv_cache_dtype"),
        "power_moe": ("moe_dtype",),
    }
)


def _kernels(frame: pd.DataFrame, table: str) -> Sequence[KernelShape]:
    if table == "power_moe":
        return experts_kernels(frame)
    if table != "power_gemm":
        return attention_kernels(frame, "decode" if "generation" in table else "prefill")
    formats = frame["gemm_dtype"].astype(str).map(FORMATS)
    sizes = (frame[name].tolist() for name in ("m", "n", "k"))
    return [GemmKernel(m, n, k, form) for m, n, k, form in zip(*sizes, formats, strict=True)]
