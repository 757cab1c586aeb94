"""Operators of transformers that Vidur profiled on three GPUs: H100 held out, and random rows."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.device import DeviceCatalog
from forerun.data.language_models.kernel import (
    ElementwiseKernel,
    ElementwiseName,
    GemmKernel,
    KernelShape,
)
from forerun.data.measurements import Measurements
from forerun.training.protocols.language_models.kernel_rows import KernelRows
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Task, counted

DEVICES: Final[Mapping[str, str]] = MappingProxyType(
    {"a100": "a100-sxm-80gb", "a40": "a40", "h100": "h100-sxm-80gb"}
)
"""Device of the table -> name in the catalog."""
OPERATIONS: Final[Mapping[str, ElementwiseName]] = MappingProxyType(
    {
        "emb": "embedding",
        "input_layernorm": "norm",
        "post_attention_layernorm": "norm",
        "attn_rope": "rotary",
        "mlp_act": "activation",
        "add": "add",
    }
)
"""Operator of the table -> operation, for those that are no matrix products."""
HELD_OUT: Final = "h100-sxm-80gb"
SIZES: Final = ("n_head", "n_kv_head", "n_embd", "n_expanded_embd", "use_gated_mlp", "tp")
TRAINING_ROWS: Final = 20_000
"""Most training rows of one device and family."""


class VidurProtocols(DatasetProtocols):
    """Products, normalisation, rotary positions, activations, sums and look-ups."""

    dataset = "vidur"
    reads = MappingProxyType({"ops_mlp": ("device", "op", "num_tokens", *SIZES, "median_ms")})

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """Operators of all GPUs."""
        return operator_rows(bundle.table("ops_mlp"), catalog).training_rows(TRAINING_ROWS)

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """A100 and A40 to H100, then a tenth of the rows of all GPUs."""
        rows = operator_rows(bundle.table("ops_mlp"), catalog)
        yield from rows.unseen_devices(TRAINING_ROWS, [HELD_OUT])
        yield rows.random_rows(TRAINING_ROWS)

    def evaluation_tasks(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Iterator[Task]:
        """Operators of devices that are not in the training set."""
        rows = operator_rows(bundle.table("ops_mlp"), catalog).measured
        for device in np.unique(rows.groups["device"]):
            if device not in seen.get("device", ()):
                own = rows.take(rows.groups["device"] == device)
                yield Task("unseen_device/operators", "latency_ms", own, device=str(device))

    def left_out(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Mapping[str, int]:
        """Operators of devices in the training set."""
        names = bundle.table("ops_mlp")["device"].astype(str).map(DEVICES)
        same = names.isin(list(seen.get("device", ()))).to_numpy(dtype=np.bool_)
        return counted({"ops_mlp: this device is in the training set": same})


def operator_rows(frame: pd.DataFrame, catalog: DeviceCatalog) -> KernelRows:
    """Rows of the table `ops_mlp` as measured kernels.

    Equal kernels on one device, in repeated runs or in several models, are one row, their median.

    Args:
        frame: the table.
        catalog: spec sheets.
    """
    sheets = {label: catalog.get(name) for label, name in DEVICES.items()}
    columns = (frame[name].tolist() for name in ("op", "num_tokens", *SIZES))
    every = pd.DataFrame(
        {
            "kernel": [_kernel(*values) for values in zip(*columns, strict=True)],
            "device": frame["device"].astype(str),
            "median_ms": frame["median_ms"].to_numpy(dtype=np.float64),
        }
    )
    rows = every.groupby(["device", "kernel"], sort=False)["median_ms"].median().reset_index()
    kernels = rows["kernel"].tolist()
    return KernelRows.of(
        kernels,
        ["other"] * len(kernels),
        rows["device"].map(sheets).tolist(),
        rows["median_ms"].to_numpy(dtype=np.float64),
        np.array([_site(kernel) for kernel in kernels], dtype=np.str_),
    )


def _site(kernel: KernelShape) -> str:
    match kernel:
        case GemmKernel():
            return f"{kernel.n} {kernel.k}"
        case ElementwiseKernel():
            return str(kernel.width)
        case _:
            raise TypeError(f"no operator of this dataset is a {type(kernel).__name__}")


def _kernel(
    op: str,
    tokens: int,
    heads: int,
    key_value_heads: int,
    hidden: int,
    inner: int,
    gated: bool,
    tensor: int,
) -> KernelShape:
    """One operator of one layer on one of `tensor` devices."""
    head, queries = hidden // heads, heads // tensor
    keys, inner = max(key_value_heads // tensor, 1), inner // tensor
    products = {
        "attn_pre_proj": ((queries + 2 * keys) * head, hidden),
        "attn_post_proj": (hidden, queries * head),
        "mlp_up_proj": (inner * (2 if gated else 1), hidden),
        "mlp_down_proj": (hidden, inner),
    }
    if op in products:
        return GemmKernel(tokens, *products[op], "fp16")
    widths = {"attn_rope": (queries + keys) * head, "mlp_act": inner}
    return ElementwiseKernel(OPERATIONS[op], tokens, widths.get(op, hidden), "fp16")
