"""Figures of a device that determine kernel times, at the precision of a run."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from forerun.data.columns import Column
from forerun.data.device import Device, Precision
from forerun.data.workload import NumberFormat
from forerun.features.operators.roofline import COMPUTE_PRECISION, sustained_tflops

DEVICE_RATIOS = ("log_ridge", "log_tensor_over_vector", "log_l2_per_unit")
"""Features from which a device's distance from the training devices is computed."""

_TYPICAL_CLOCK_MHZ = 1500.0
_UNIT_FLOPS_PER_CLOCK = 256.0
_TYPICAL_L2_MIB_PER_UNIT = 0.1


@dataclass(frozen=True, slots=True)
class Chip:
    """Figures of a device that determine kernel times.

    Attributes:
        matrix: FLOP/s of products in the run's precision, as sustained under the power limit.
        conv: FLOP/s of convolutions: as `matrix`, but TF32 for fp32 where the device supports it,
            since PyTorch's `cudnn.allow_tf32` is on by default since 1.7.
        vector: FLOP/s of ordinary fp32 units.
        bandwidth: bytes/s.
        units: compute units.
        l2_bytes: shared cache.
    """

    matrix: float
    conv: float
    vector: float
    bandwidth: float
    units: float
    l2_bytes: float


def chip_of(device: Device, precision: NumberFormat) -> Chip:
    """The figures of a device for one precision; missing units and L2 are estimated.

    Raises:
        UnknownPrecision: the sheet has no peak for the precision or a substitute for it.
    """
    return _chip(_BySheet(device), COMPUTE_PRECISION[precision])


def assumed(device: Device) -> tuple[str, ...]:
    """Names of figures that the features need and the sheet lacks, which are estimated."""
    names: tuple[str, ...] = ("compute_units", "l2_mib")
    if device.kind == "gpu":
        names += ("tdp_w", "process_nm")
    return tuple(name for name in names if getattr(device, name) is None)


def device_ratios(chip: Chip) -> Column:
    """The columns of `DEVICE_RATIOS`, shape (3,)."""
    return np.log(
        [chip.matrix / chip.bandwidth, chip.matrix / chip.vector, chip.l2_bytes / chip.units]
    )


class _BySheet:
    """A device as a cache key: compared by identity first, then by its figures."""

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
    )
