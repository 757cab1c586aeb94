"""amd_kernels: convolutions, products and expert layers on AMD GPUs; chips and shapes held out.

A chip is held out together with variants that differ only in a few compute units. Each is evaluated
zero-shot and after adaptation to 50 of its rows. Rows that no query can express are skipped:
gradients of convolution weights, layouts other than NCHW, formats that we have no name for, GPUs
without a spec sheet, and problems of the MI50 for which only one algorithm was timed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.columns import Mask
from forerun.data.datasets.networks.amd_kernels import SITES, chips, sites
from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator
from forerun.data.language_models.kernel import (
    ExpertsKernel,
    GemmKernel,
    KernelShape,
    LlmKernel,
    ProductFormat,
)
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel, NumberFormat, Workload
from forerun.models.kernel_experts.amd import amd_groups
from forerun.training.protocols import protocol as dp
from forerun.training.protocols.language_models.kernels import KernelProtocols, KernelRows

MOST_ROWS: Final = 10_000
"""Most training rows of one GPU and family."""
SHOTS: Final = 50
CONV_FORMATS: Final[Mapping[str, NumberFormat]] = {"FP32": "fp32", "FP16": "fp16", "BF16": "bf16"}
PRODUCT_FORMATS: Final[Mapping[tuple[str, str, str], ProductFormat]] = {
    ("bf16", "bf16", "none"): "bf16",
    ("fp8", "fp8", "1x128"): "fp8_block",
    ("fp8", "fp8", "row_or_tensor"): "fp8",
    ("fp8", "fp8", "row"): "fp8",
    ("fp4", "fp4", "1x32"): "mxfp4_mxfp4",
    ("fp8", "fp4", "1x32"): "mxfp4_mxfp8",
    ("bf16", "fp4", "1x32"): "mxfp4",
}
"""Types of activations and of weights, and type of scales -> number format."""
PRODUCTS: Final[Mapping[str, tuple[str, str, tuple[str, ...], Callable[..., KernelShape]]]] = {
    "gemm": ("gemm", "a_dtype", ("M", "N", "K"), GemmKernel),
    "moe": (
        "experts",
        "w_dtype",
        ("token", "model_dim", "inter_dim", "expert", "topk"),
        ExpertsKernel,
    ),
}
"""Table -> first part of task names, column of the weight type, columns of sizes, kernel."""
UNKNOWN_ALGORITHM: Final = "gfx906_60cu"


class AmdKernelProtocols(KernelProtocols):
    """Convolutions by direction and format, products and expert layers by format."""

    dataset = "amd_kernels"

    def tables(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[KernelRows]:
        """Convolutions, products and expert layers, as far as the bundle has them."""
        for table in filter(bundle.has, SITES):
            yield kernel_rows(table, bundle.table(table), catalog)

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[dp.Fold]:
        """For each table: each chip held out, then a tenth of the shapes."""
        for rows in self.tables(bundle, catalog):
            if rows.prefix != "moe_":
                yield from map(with_few, rows.unseen_devices("chip"))
            yield rows.held_out_sites()

    def evaluation_tasks(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> dp.Tasks:
        """Kernels on GPUs that are not in the training set."""
        for table in self.tables(bundle, catalog):
            new = table.measured.take(~dp.is_seen(table.measured, "device", seen))
            name = f"unseen_device/{table.prefix.strip('_')}"
            yield from dp.tasks_by(new, ("device",), name, "latency_ms")

    def reasons(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> Mapping[str, Mask]:
        """Rows that no query can express."""
        kept = {t: _kept(t, bundle.table(t), catalog) for t in filter(bundle.has, SITES)}
        reason = "no question can be about such a kernel"
        return {f"{table}: {reason}": ~rows for table, rows in kept.items()}


def with_few(fold: dp.Fold) -> dp.Fold:
    """A fold with each task twice: zero-shot, and adapted to `SHOTS` rows of the device under test.

    Parts that were measured on no other GPU have no task.
    """
    tasks, known = [], set(fold.train.groups["part"].tolist())
    for task in fold.tasks:
        protocol, _, part = task.name.partition("/")
        if part not in known:
            continue
        tasks += [task, replace(task, name=f"{protocol}_50/{part}", support=dp.Support(SHOTS))]
    return replace(fold, tasks=tasks)


def kernel_rows(table: str, frame: pd.DataFrame, catalog: DeviceCatalog) -> KernelRows:
    """Rows of `conv` as measured operators, or of `gemm` and `moe` as measured kernels."""
    frame = frame[_kept(table, frame, catalog)]
    workloads, parts = _convolutions(frame) if table == "conv" else _products(table, frame)
    sheets = {gpu: catalog.get(gpu) for gpu in frame["gpu"].astype(str).unique()}
    devices = [sheets[gpu] for gpu in frame["gpu"].astype(str)]
    queries = [Query(workload, device) for workload, device in zip(workloads, devices, strict=True)]
    groups = {
        "chip": chips(frame),
        "part": parts,
        "op_class": [table] * len(frame),
        "site": sites(frame, SITES[table]),
    }
    latency_ms = frame["best_ms"] if table == "conv" else frame["us"] / 1e3
    rows = Measurements.of(queries, {"latency_ms": latency_ms}, groups)
    return KernelRows(rows, MOST_ROWS, f"{table}_", amd_groups)


def _convolutions(frame: pd.DataFrame) -> tuple[Sequence[Workload], list[str]]:
    """Forward passes and input gradients, and the part of each."""
    names = ("n", "c", "h", "w", "k", "kh", "kw", "ph", "pw", "sh", "sw", "dh", "dw", "groups")
    columns = zip(*(frame[name].tolist() for name in names), strict=True)
    directions = frame["dir"].astype(str).tolist()
    operators = [_convolution(d, *row) for d, row in zip(directions, columns, strict=True)]
    formats = [CONV_FORMATS[name] for name in frame["dtype"].astype(str)]
    kernels = [Kernel(op, form) for op, form in zip(operators, formats, strict=True)]
    return kernels, [f"conv_{d}/{form}" for d, form in zip(directions, formats, strict=True)]


def _products(table: str, frame: pd.DataFrame) -> tuple[Sequence[Workload], list[str]]:
    """The kernel of each row, and its part."""
    part, weights, names, make = PRODUCTS[table]
    formats = [PRODUCT_FORMATS[values] for values in _types(frame, weights)]
    sizes = zip(*(frame[name].tolist() for name in names), strict=True)
    kernels = [
        LlmKernel(make(*values, format=form)) for values, form in zip(sizes, formats, strict=True)
    ]
    return kernels, [f"{part}/{form}" for form in formats]


def _with_sheet(frame: pd.DataFrame, catalog: DeviceCatalog) -> Mask:
    names = frame["gpu"].astype(str)
    with_sheet = {alias for device in catalog for alias in device.aliases}
    return np.asarray(names.isin(list(with_sheet)), dtype=np.bool_)


def _kept(table: str, frame: pd.DataFrame, catalog: DeviceCatalog) -> Mask:
    """Rows that a query can express."""
    if table == "conv":
        texts = {name: frame[name].astype(str) for name in ("gpu", "dtype", "dir", "layout")}
        kept = texts["dtype"].isin(list(CONV_FORMATS))
        kept &= (texts["dir"] != "W") & (texts["layout"] == "NCHW")
        kept &= (texts["gpu"] != UNKNOWN_ALGORITHM) | (frame["n_timed"] > 1)
    else:
        kept = frame["batch"] == 1 if table == "gemm" else frame["gated"].astype(bool)
        types = _types(frame, PRODUCTS[table][1])
        kept &= np.array([type_ in PRODUCT_FORMATS for type_ in types], dtype=np.bool_)
    return np.asarray(kept & _with_sheet(frame, catalog), dtype=np.bool_)


def _types(frame: pd.DataFrame, weights: str) -> list[tuple[str, str, str]]:
    columns = (frame[name].astype(str).tolist() for name in ("a_dtype", weights, "scale"))
    return list(zip(*columns, strict=True))


def _convolution(direction: str, *sizes: int) -> Operator:
    n, c, h, w, k, kh, kw, ph, pw, sh, sw, dh, dw, groups = sizes
    out_h = (h + 2 * ph - dh * (kh - 1) - 1) // sh + 1
    out_w = (w + 2 * pw - dw * (kw - 1) - 1) // sw + 1
    source, target = (n, c, h, w), (n, k, out_h, out_w)
    weights = k * (c // groups) * kh * kw
    window: dict[str, int | tuple[int, ...]] = {
        **{"kernel": (kh, kw), "stride": (sh, sw), "padding": (ph, pw)},
        **{"dilation": (dh, dw), "groups": groups},
    }
    if direction == "F":
        return Operator("conv", "miopen.convolution", (source,), (target,), weights, window)
    name = "miopen.convolution_backward_data"
    return Operator("conv_transpose", name, (target,), (source,), weights, window)
