"""The roofline bound: the slower of arithmetic at peak and traffic at full bandwidth.

Williams, Waterman, Patterson: "Roofline: an insightful visual performance model", CACM 2009.
"""

from collections.abc import Sequence

import numpy as np

from forerun.data.device import Device, Precision
from forerun.data.number_formats import FORMATS
from forerun.data.shapes import Float64
from forerun.data.workload import NumberFormat
from forerun.features.operators.kinds import IS_GEMM, KIND_CODE, KINDS
from forerun.features.operators.table import OperatorTable

COMPUTE_PRECISION: dict[NumberFormat, Precision] = {
    "fp32": "fp32",
    "tf32": "tf32",
    "fp16": "fp16",
    "bf16": "bf16",
    "fp8": "fp8",
    "int8": "int8",
    "amp": "fp16",
    "amp_bf16": "bf16",
}
"""Number format -> precision of its arithmetic."""

ELEMENT_BYTES: dict[NumberFormat, float] = {
    name: FORMATS[arithmetic].bytes for name, arithmetic in COMPUTE_PRECISION.items()
}
"""Bytes per activation or weight as read by the kernels of a run."""

_EMBEDDING = KIND_CODE["embedding"]
_IS_CONV = np.array([kind.name in ("conv", "conv_transpose") for kind in KINDS])
_NODE_NM = np.array([4.0, 5.0, 7.0, 8.0, 12.0, 16.0, 28.0])
_FP32_GFLOP_PER_W = np.array([200.0, 180.0, 90.0, 85.0, 53.0, 37.0, 18.0])
_TENSOR_SAVING = 8.0
HALF_RATE, FULL_RATE_SHARE = 2.2, 0.75
GRAPHICS_FP64_SHARE = 0.1
"""Share of the fp32 rate that separates graphics boards, which run fp64 at 1/32 or 1/64 of it and
have GDDR memory, from those that run it at 1/2 and have HBM."""
PCIE_GBS = 130.0
"""Link bandwidth above which it is not PCIe, 1e9 bytes/s for both directions together."""


def power_capped_tflops(device: Device, precision: Precision) -> float:
    """Dense peak, or the rate that the power limit sustains if that is lower.

    The energy of a multiply-add falls with the process node: on fp32 matrix products a 16 nm chip
    sustains about 37 GFLOP/s per watt (P100, P4), a 12 nm chip about 53 (V100, T4); so P4 and T4
    sustain 49 and 46 % of their nominal peak and V100 96 % (measured on NeuSight's linear layers).
    Newer nodes are interpolated from data sheets. Tensor units use about an eighth of the energy
    per FLOP.

    Args:
        device: spec sheet; without `tdp_w` or `process_nm` the nominal peak is returned.
        precision: precision of the arithmetic.

    Returns:
        1e12 FLOP/s.

    Raises:
        UnknownPrecision: the sheet has no peak for the precision.
    """
    peak = device.peak(precision, matrix=True)
    if device.tdp_w is None or device.process_nm is None:
        return peak
    per_watt = float(np.interp(device.process_nm, _NODE_NM, _FP32_GFLOP_PER_W))
    fp32 = device.peak_tflops.get("fp32", peak)
    if peak > 1.5 * fp32:
        per_watt *= _TENSOR_SAVING
    return min(peak, device.tdp_w * per_watt / 1e3)


def is_graphics(device: Device) -> bool:
    """Whether a board is made for graphics: it barely supports fp64, and its link is PCIe.

    H20, H800 and B300 barely support fp64 either, but have the memory, links and matrix units of
    data-centre GPUs.
    """
    fp32 = device.peak_tflops.get("fp32") or max(device.peak_tflops.values())
    if device.peak_tflops.get("fp64", 0.0) >= GRAPHICS_FP64_SHARE * fp32:
        return False
    return (device.interconnect_gbs or 0.0) <= PCIE_GBS


def sustained_tflops(device: Device, precision: Precision) -> float:
    """Rate that large half-precision matrix products sustain, 1e12 FLOP/s; fp32 as power-capped.

    Chips whose matrix units run at twice the fp32 rate (GeForce with fp32 accumulation) sustain
    their nominal peak. Full-rate parts sustain 57 to 80 % of it: A100 249 of 312, H100 747 of 989,
    B200 1471 of 2250 (bf16 products in AIConfigurator's tables), taken as 75 %. Graphics chips are
    also power-limited: 0.72 TFLOP/s per watt at 5 nm (L40S, same tables), less on older nodes.

    Raises:
        UnknownPrecision: the sheet has no peak for the precision.
    """
    peak = device.peak(precision, matrix=True)
    fp32 = device.peak_tflops.get("fp32", peak)
    if peak <= 1.5 * fp32:
        return power_capped_tflops(device, precision)
    if peak <= HALF_RATE * fp32:
        return peak
    sustained = FULL_RATE_SHARE * peak
    graphics = device.kind == "gpu" and is_graphics(device)
    if graphics and device.tdp_w is not None and device.process_nm is not None:
        per_watt = float(np.interp(device.process_nm, (5.0, 8.0, 12.0), (0.72, 0.5, 0.43)))
        sustained = min(sustained, device.tdp_w * per_watt)
    return sustained


def traffic_bytes(table: OperatorTable, precision: NumberFormat) -> Float64[np.ndarray, " n"]:
    """Bytes that each operator reads and writes, counting every tensor once, shape (n,).

    For an embedding table, only the rows that are looked up are read.
    """
    looked_up = np.minimum(table.parameter_elements, table.out_elements)
    weights = np.where(table.kind == _EMBEDDING, looked_up, table.parameter_elements)
    moved = table.in_elements + table.out_elements + weights
    return np.asarray(moved * ELEMENT_BYTES[precision])


def roofline_ms(
    table: OperatorTable,
    device: Device,
    precision: NumberFormat,
    tf32_convolutions: bool = False,
) -> Float64[np.ndarray, " n"]:
    """Lower bound of each operator's time per execution, shape (n,), milliseconds.

    Args:
        table: n operators at their batch size.
        device: spec sheet.
        precision: number format of the run.
        tf32_convolutions: whether convolutions of an fp32 run may use TF32 where the device
            supports it, as PyTorch's do by default.

    Raises:
        UnknownPrecision: the spec sheet has no peak for the precision.
    """
    return np.asarray(rooflines_ms(table, [device], precision, tf32_convolutions)[0])


def rooflines_ms(
    table: OperatorTable,
    devices: Sequence[Device],
    precision: NumberFormat,
    tf32_convolutions: bool = False,
) -> Float64[np.ndarray, "c n"]:
    """`roofline_ms` on each of c devices, shape (c, n)."""
    figures = [_figures(device, precision, tf32_convolutions) for device in devices]
    matrix, vector, conv, bandwidth = np.array(figures, dtype=np.float64).T[..., None]
    peak = np.where(IS_GEMM[table.kind], matrix, vector)
    peak = np.where(_IS_CONV[table.kind], conv, peak)
    compute = table.flops / (peak * 1e9)
    memory = traffic_bytes(table, precision) / (bandwidth * 1e6)
    return np.asarray(np.maximum(compute, memory))


def _figures(
    device: Device, precision: NumberFormat, tf32_convolutions: bool
) -> tuple[float, float, float, float]:
    """Peaks of products, of other operators and of convolutions, and the bandwidth."""
    matrix = device.peak(COMPUTE_PRECISION[precision], matrix=True)
    vector = device.peak_tflops.get("fp32", matrix)
    with_tf32 = tf32_convolutions and precision == "fp32" and "tf32" in device.peak_tflops
    conv = device.peak("tf32", matrix=True) if with_tf32 else matrix
    return matrix, vector, conv, device.bandwidth_gbs
