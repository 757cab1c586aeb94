"""How unlike the devices of the training rows a device is: one measure for all predictors.

A device is placed by logarithms of ratios on its spec sheet, each in units of how far it may move
before kernels behave differently: half-precision over fp32 peak (generations of matrix units, and
with them of kernel libraries), the share of the fp32 peak that the power limit sustains, and the
ridge point (Williams et al. 2009), which tells stacked from graphics memory.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from forerun.data.device import Device
from forerun.features.operators.roofline import power_capped_tflops

Vector = NDArray[np.float64]

RATIOS: tuple[str, ...] = ("log_half_over_fp32", "log_sustained_share", "log_ridge")
"""What `device_position` holds, in order."""

ARITHMETIC_SCALES: Vector = np.array([0.5, 0.35, 0.5])
"""Units of the ratios for work limited by arithmetic, and for novelty.

Chosen on operators of NeuSight's five training GPUs, each left out in turn.
"""
MEMORY_SCALES: Vector = np.array([1.0, 0.25, 0.5])
"""Units for work limited by memory traffic, chosen likewise."""

NOVEL = 1.0
"""Distance from which a GPU is novel: one ratio of its sheet has moved by its unit."""


def device_position(device: Device) -> Vector:
    """The logarithms of `RATIOS`, shape (3,).

    Raises:
        UnknownBandwidth: the device has no spec sheet.
        UnknownPrecision: its sheet has no peak that fp32 work could run at.
    """
    bandwidth = device.bandwidth_gbs
    fp32 = device.peak("fp32", matrix=True)
    peaks = device.peak_tflops
    half = max(peaks.get("fp16", 0.0), peaks.get("bf16", 0.0), fp32)
    sustained = min(1.0, power_capped_tflops(device, "fp32") / fp32)
    ratios: Vector = np.array([half / fp32, sustained, 1e3 * fp32 / bandwidth])
    return np.asarray(np.log(ratios))


def distance(one: Vector, other: Vector, scales: Vector = ARITHMETIC_SCALES) -> float:
    """Euclidean distance of two positions, in the units given."""
    return float(np.sqrt((((one - other) / scales) ** 2).sum()))


def similarity(one: Vector, other: Vector, scales: Vector = ARITHMETIC_SCALES) -> float:
    """Gaussian kernel of the distance: 1 for equal positions, towards 0 for unlike ones."""
    return float(np.exp(-0.5 * distance(one, other, scales) ** 2))


def device_novelty(device: Device, known: Iterable[Device]) -> float:
    """Distance of a device from the nearest of those known.

    Args:
        device: any device; one without a spec sheet is infinitely novel.
        known: devices of the training rows; those without a sheet do not count.

    Returns:
        0 for a device that is known; about 1 where one ratio has moved by its unit; infinite
        when no device is known.
    """
    if not device.has_sheet:
        return float("inf")
    return novelty_of(device_position(device), [device_position(d) for d in known if d.has_sheet])


def novelty_of(position: Vector, known: Iterable[Vector]) -> float:
    """`device_novelty` for devices whose positions are at hand."""
    return min((distance(position, other) for other in known), default=float("inf"))


def novel_lines(device: Device, known: Iterable[Vector]) -> tuple[str, ...]:
    """A line for a GPU that is unlike every GPU of the training rows; none for others.

    Args:
        device: one with a spec sheet.
        known: positions of the GPUs of the training rows.
    """
    far = novelty_of(device_position(device), known)
    if not NOVEL < far < float("inf"):
        return ()
    return (
        f"the GPU is unlike those of the training rows: its matrix units, sustained clocks and "
        f"ridge point lie {far:.1f} away from the nearest, up to {NOVEL:g} is in domain",
    )
