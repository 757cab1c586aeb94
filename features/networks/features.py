"""Features of a whole network on one device, from the kernels that it is lowered to.

A device enters through time only: features are means over the kernels, weighted by each kernel's
roofline time on it. Ratios of the device itself are left out, since few devices are ever measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.device import Device, Precision
from forerun.data.software import Software
from forerun.data.workload import Network, NumberFormat
from forerun.features.lowering import Kernels
from forerun.features.lowering.kernel_kinds import IS_CONV, KERNEL_CLASSES, KERNEL_KINDS
from forerun.features.lowering.kernels import TILE
from forerun.features.lowering.mode import torch_version
from forerun.features.operators.roofline import COMPUTE_PRECISION, sustained_tflops

Column = NDArray[np.float64]

LAUNCH_S = 5e-6
"""Seconds of a launch on the device when the queue is full."""

_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
_LOWEST_LOG_INTENSITY = -6.0
_TINY = 1e-12

NETWORK_FEATURES: tuple[str, ...] = (
    "log_batch",
    "log_launch_over_roofline",
    "log_launches",
    "compute_bound_share",
    "log_kernels_over_totals",
    "fusible_share",
    "fixed_traffic_share",
    "in_l2_share",
    "wave_fill",
    "aligned_8",
    "aligned_64",
    "mean_log_k",
    "mean_log_n",
    "mean_log_groups",
    *(f"log_intensity_q{int(q * 100)}" for q in _QUANTILES),
    *(f"share_{name}" for name in KERNEL_CLASSES),
    *("on_cpu", "compiled", "nhwc", "training", "autocast", "half", "torch_version"),
)
"""Shares and means are over the network's roofline time; `log_intensity` is log(compute time /
memory time) of its kernels; `wave_fill` the filled share of last waves of 128 x 128 tiles."""

DEVICE_RATIOS = ("log_ridge", "log_tensor_over_vector", "log_l2_per_unit")
"""Features from which a device's distance from the training devices is computed."""

_TYPICAL_CLOCK_MHZ = 1500.0
_UNIT_FLOPS_PER_CLOCK = 256.0
_TYPICAL_L2_MIB_PER_UNIT = 0.1


@dataclass(frozen=True, slots=True)
class Chip:
    """Figures of a device that kernels' times depend on.

    Attributes:
        matrix: FLOP/s of products in the run's precision, as power sustains it.
        conv: FLOP/s of convolutions: as `matrix`, but TF32 where fp32 was asked for and the device
            has it, as PyTorch's `cudnn.allow_tf32` is on by default since 1.7.
        vector: FLOP/s of ordinary fp32 units.
        bandwidth: bytes/s.
        units: compute units.
        l2_bytes: shared cache.
        is_cpu: whether it is a CPU.
    """

    matrix: float
    conv: float
    vector: float
    bandwidth: float
    units: float
    l2_bytes: float
    is_cpu: bool


@dataclass(frozen=True)
class Chips:
    """The figures of `Chip` of c devices as arrays that broadcast, each of shape (c, 1, 1)."""

    matrix: Column
    conv: Column
    vector: Column
    bandwidth: Column
    units: Column

    @classmethod
    def of(cls, chips: Sequence[Chip]) -> Self:
        """The figures of these devices."""
        rows = [(c.matrix, c.conv, c.vector, c.bandwidth, c.units) for c in chips]
        return cls(*np.array(rows, dtype=np.float64).T[..., None, None])


def chip_of(device: Device, precision: NumberFormat) -> Chip:
    """The figures of a device for one precision; missing units and L2 are estimated.

    Raises:
        UnknownPrecision: the sheet has no peak for the precision nor for what could stand in.
    """
    return _chip(_BySheet(device), COMPUTE_PRECISION[precision])


def assumed(device: Device) -> tuple[str, ...]:
    """Estimates of figures that features need and the sheet lacks, or no limit."""
    names: tuple[str, ...] = ("compute_units", "l2_mib")
    if device.kind == "gpu":
        names += ("tdp_w", "process_nm")
    return tuple(name for name in names if getattr(device, name) is None)


def peak_flops(chip: Chip | Chips, tensor: NDArray[np.bool_], conv: NDArray[np.bool_]) -> Column:
    """Peak of each kernel, FLOP/s, shape (n,); (c, 1, n) on several devices.

    Args:
        chip: the device at the run's precision, or c devices.
        tensor: (n,) whether it runs on matrix units.
        conv: (n,) whether it is a convolution.
    """
    return np.where(tensor, np.where(conv, chip.conv, chip.matrix), chip.vector)


def device_ratios(chip: Chip) -> Column:
    """The columns of `DEVICE_RATIOS`, shape (3,)."""
    return np.log(
        [chip.matrix / chip.bandwidth, chip.matrix / chip.vector, chip.l2_bytes / chip.units]
    )


def network_features(
    kernels: Kernels, chip: Chip, network: Network, software: Software
) -> tuple[Column, float]:
    """Features of one network run, and its roofline time.

    Args:
        kernels: its forward pass, per sample.
        chip: the device at the run's precision.
        network: batch size, precision, phase.
        software: runtime, layout, version.

    Returns:
        (len(NETWORK_FEATURES),) features; seconds that the kernels take at their rooflines.
    """
    batch = float(network.batch_size)
    peak = peak_flops(chip, kernels.tensor, kernels.is_conv)
    work = kernels.work * batch + kernels.fixed_work
    activations = kernels.traffic * batch
    traffic = activations + kernels.fixed_traffic
    compute, memory = work / peak, traffic / chip.bandwidth
    times = np.maximum(compute, memory)
    total = float(times.sum()) + _TINY
    share = times / total
    views = kernels.product_views @ share
    products = views[0] + 1e-6
    waves = np.ceil(kernels.m * batch / TILE) * kernels.tiles_across / chip.units
    fill = waves / np.ceil(waves + 1e-9)
    at_once = max(work.sum() / peak.max(initial=1.0), traffic.sum() / chip.bandwidth) + _TINY
    row = np.empty(len(NETWORK_FEATURES))
    row[:14] = (
        np.log(batch),
        np.log(max(kernels.launches, 1.0) * LAUNCH_S / total),
        np.log(max(kernels.launches, 1.0)),
        share[compute > memory].sum(),
        np.log(total / at_once),
        kernels.fusible_traffic * batch / (chip.bandwidth * total),
        kernels.fixed_traffic.sum() / (chip.bandwidth * total),
        share[activations < chip.l2_bytes].sum(),
        (share * fill * kernels.is_product).sum() / products,
        *(views[1:] / products),
    )
    row[14:19] = _intensities(compute, memory, share)
    end = 19 + len(KERNEL_CLASSES)
    row[19:end] = np.bincount(kernels.kernel_class, weights=share, minlength=len(KERNEL_CLASSES))
    row[end:] = (
        chip.is_cpu,
        software.fuses,
        software.layout == "nhwc",
        network.phase == "training",
        network.precision in ("amp", "amp_bf16"),
        network.precision in ("fp16", "bf16"),
        torch_version(software),
    )
    return row, total


def kind_seconds(kernels: Kernels, chip: Chip, batch: float) -> Column:
    """Roofline seconds by kind of kernel, and launches.

    Returns:
        (3, len(KERNEL_KINDS)): arithmetic at peak, traffic at full bandwidth, launches.
    """
    sums = kernels.totals
    peak = peak_flops(chip, sums.tensor, IS_CONV)
    rows = np.empty((3, len(KERNEL_KINDS)))
    rows[0] = (sums.work * batch + sums.fixed_work) / peak
    rows[1] = (sums.traffic * batch + sums.fixed_traffic) / chip.bandwidth
    rows[2] = sums.launches
    return rows


def _intensities(compute: Column, memory: Column, share: Column) -> Column:
    """Quantiles of the log intensity, every kernel weighed by its share of the time."""
    if not len(share):
        return np.zeros(len(_QUANTILES))
    intensity = np.log((compute + _TINY) / (memory + _TINY))
    intensity = np.maximum(intensity, _LOWEST_LOG_INTENSITY)
    order = np.argsort(intensity)
    reached = np.searchsorted(np.cumsum(share[order]), _QUANTILES)
    return np.asarray(intensity[order][np.minimum(reached, len(order) - 1)])


class _BySheet:
    """A device as a cache key: by identity first, by its figures where names agree."""

    __slots__ = ("device",)

    def __init__(self, device: Device) -> None:
        self.device = device

    def __hash__(self) -> int:
        return hash(self.device)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _BySheet):
            return False
        return self.device is other.device or self.device == other.device


@lru_cache(maxsize=1024)
def _chip(key: _BySheet, precision: Precision) -> Chip:
    device = key.device
    is_cpu = device.kind == "cpu"
    matrix = device.peak(precision, matrix=True)
    vector = device.peak_tflops.get("fp32", matrix)
    if not is_cpu:
        matrix = sustained_tflops(device, precision)
    clock = (device.boost_clock_mhz or _TYPICAL_CLOCK_MHZ) * 1e6
    units = float(device.compute_units or max(1.0, vector * 1e12 / clock / _UNIT_FLOPS_PER_CLOCK))
    conv = matrix
    if precision == "fp32" and not is_cpu and "tf32" in device.peak_tflops:
        conv = sustained_tflops(device, "tf32")
    return Chip(
        matrix=matrix * 1e12,
        conv=conv * 1e12,
        vector=vector * 1e12,
        bandwidth=device.bandwidth_gbs * 1e9,
        units=units,
        l2_bytes=(device.l2_mib or _TYPICAL_L2_MIB_PER_UNIT * units) * 2**20,
        is_cpu=is_cpu,
    )
