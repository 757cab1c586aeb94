"""NeuSight operator and network latencies on eleven GPUs, fp32.

One row of `ops` is one kernel: mean of the five fastest of 25 CUDA-event timings, launch included.
Source: sitar-lab/NeuSight at 6945927d, MIT. Paper: ASPLOS 2025, arXiv 2407.13853.
"""

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.datasets.dataset import Dataset
from forerun.data.datasets.networks import neusight_files as files
from forerun.data.quality import Quantities, check
from forerun.data.split import Split, is_one_of
from forerun.data.upstream.downloads import RawFiles

if TYPE_CHECKING:
    import pandas as pd

NVIDIA_TRAINING: Final = (
    "Tesla P4",
    "Tesla P100-PCIE-16GB",
    "Tesla V100-PCIE-32GB",
    "Tesla T4",
    "NVIDIA A100-PCIE-40GB",
)
AMD_TRAINING: Final = ("AMD Instinct MI100", "AMD Instinct MI210")
OPERATOR_QUERY: Final = ("device", "op", "dtype", "software", *files.DIMENSIONS)

_WINOGRAD = 4.0
"""Winograd's F(4x4, 3x3) needs a quarter of the multiplications (Lavin and Gray 2016)."""
_LAUNCH_BOUND_MS = 0.02


class NeuSight(Dataset, declared="neusight"):
    """Trained on operators of five GPUs, evaluated on unseen GPUs and on whole networks."""

    def tidy(self, raw: RawFiles) -> dict[str, "pd.DataFrame"]:
        """`ops`, `devices`, `e2e`, `opgraphs` and `graph_ops`, as far as their files are there."""
        opgraphs = files.read_opgraphs(raw, files.read_models(raw))
        trained = frozenset((*NVIDIA_TRAINING, *AMD_TRAINING))
        tables = {
            "ops": files.read_ops(raw),
            "devices": files.read_devices(raw, trained),
            "e2e": files.read_e2e(raw),
            "opgraphs": opgraphs,
            "graph_ops": files.read_graph_ops(raw, opgraphs),
        }
        return {name: frame for name, frame in tables.items() if len(frame)}

    def documents(self, raw: RawFiles) -> dict[str, Any]:
        """`models`: transformer configurations by name."""
        return {"models": files.read_models(raw)}

    def splits(self, bundle: Bundle) -> list[Split]:
        """`unseen_device` (NVIDIA), `unseen_device_amd`, `leave_one_gpu_out/DEVICE`, `end_to_end`.

        The published protocol is `unseen_device`: it trains on the train rows of five GPUs and
        holds out the test rows of every other NVIDIA GPU (or GPU unknown to the paper). Train rows
        of the others, such as the convolutions of the A100 80GB, are not used. No end-to-end row
        is ever a training row.
        """
        splits = []
        if bundle.has("ops"):
            splits += _operator_splits(bundle.table("ops"))
        if bundle.has("e2e"):
            rows = len(bundle.table("e2e"))
            nobody, all_rows = np.zeros(rows, dtype=np.bool_), np.ones(rows, dtype=np.bool_)
            splits.append(Split("end_to_end", "e2e", nobody, all_rows))
        return [split for split in splits if split.held_out.any()]

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """Doubtful rows of `ops`: duplicates, impossible values, throttled groups."""
        return self.flags_of(bundle.table("ops"), bundle.table("devices"))

    def flags_of(self, ops: "pd.DataFrame", devices: "pd.DataFrame") -> "pd.DataFrame":
        """Doubtful rows of a selection, so that training rows are checked without held-out rows."""
        bound, floor = bounds_ms(ops, devices)
        latency = ops["latency_ms"].to_numpy(dtype=np.float64)
        utilisation = np.where(bound > _LAUNCH_BOUND_MS, bound / latency, np.nan)
        return check(
            ops,
            Quantities(time_ms=latency, bound_ms=floor, utilisation=utilisation),
            same=(*OPERATOR_QUERY, "latency_ms"),
            groups=("device", "op_class", "split_published"),
        )


def bounds_ms(
    ops: "pd.DataFrame", devices: "pd.DataFrame"
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Roofline time of each operator by the paper's spec sheets, and a strict lower bound.

    The second counts arithmetic alone (a small tensor stays in cache, a convolution may run by
    Winograd's algorithm). NaN for devices without a sheet.
    """
    dims = {d: ops[d].fillna(0).to_numpy(dtype=np.float64) for d in files.DIMENSIONS}
    b, m, n, k, h = (dims[d] for d in ("batch", "m", "n", "k", "h"))
    kind = ops["op_class"].astype(str).to_numpy()
    gemm, conv = np.isin(kind, ["bmm", "linear"]), kind == "conv"
    out = (dims["in_hw"] + 2 * dims["pad"] - dims["ksize"]) // np.maximum(dims["stride"], 1) + 1
    weights = dims["c_in"] * dims["c_out"] * dims["ksize"] ** 2
    flops = np.where(gemm, 2 * b * m * n * k, np.where(conv, 2 * b * out**2 * weights, b * h))
    images = b * (dims["c_in"] * dims["in_hw"] ** 2 + dims["c_out"] * out**2) + weights
    operands = 2 + is_one_of(ops["op"], ("add", "mul", "pow", "div"))
    shared = np.where(kind == "linear", 1, b)
    elements = np.where(gemm, b * m * (k + n) + shared * k * n, operands * b * h)
    sheets = devices.drop_duplicates("device").set_index("device")
    of_row = sheets.reindex(ops["device"].astype(str))
    matrix = of_row["fp32_gflops_mm"].to_numpy(dtype=np.float64)
    vector = of_row["fp32_gflops_vec"].to_numpy(dtype=np.float64)
    arithmetic = flops / (np.where(gemm | conv, matrix, vector) * 1e6)
    traffic = 4 * np.where(conv, images, elements) / of_row["mem_bw_gbs"].to_numpy(float) / 1e6
    return np.maximum(arithmetic, traffic), np.where(conv, arithmetic / _WINOGRAD, arithmetic)


def _operator_splits(ops: "pd.DataFrame") -> list[Split]:
    device, part = ops["device"], ops["split_published"].astype(str)
    train_part, tested = is_one_of(part, ("train",)), is_one_of(part, ("test",))
    amd = np.asarray(device.astype(str).str.startswith("AMD"), dtype=np.bool_)

    def split(protocol: str, train: NDArray[np.bool_], held_out: NDArray[np.bool_]) -> Split:
        return Split(protocol, "ops", train, held_out, ("device",), OPERATOR_QUERY)

    nvidia_trained, amd_trained = (
        is_one_of(device, NVIDIA_TRAINING),
        is_one_of(device, AMD_TRAINING),
    )
    splits = [
        split("unseen_device", train_part & nvidia_trained, tested & ~nvidia_trained & ~amd),
        split("unseen_device_amd", train_part & amd_trained, tested & ~amd_trained & amd),
    ]
    for name in NVIDIA_TRAINING:
        out = is_one_of(device, (name,))
        train = train_part & nvidia_trained & ~out
        splits.append(split(f"leave_one_gpu_out/{name}", train, tested & out))
    return splits
