"""Novelty of a device: its distance from the devices in the training set.

A device's position consists of logarithms of ratios on its spec sheet: half-precision over fp32
peak (which reflects the generation of matrix units, and hence of kernel libraries), the share of
the fp32 peak that the power limit sustains, and the ridge point (Williams et al. 2009), which
separates stacked from graphics memory. The unit of each ratio is the change beyond which kernels
behave differently.
"""

from collections.abc import Iterable

import numpy as np

from forerun.data.device import Device
from forerun.data.device_slices import PART
from forerun.data.shapes import Float64
from forerun.features.operators.roofline import power_capped_tflops
from forerun.models.limit import LATENCY, Limit

ARITHMETIC_SCALES: Float64[np.ndarray, " 3"] = np.array([0.5, 0.35, 0.5])
"""Units of the ratios for compute-bound work and for novelty, chosen on operators of NeuSight's
five training GPUs with each held out in turn."""
MEMORY_SCALES: Float64[np.ndarray, " 3"] = np.array([1.0, 0.25, 0.5])
"""Units of the ratios for memory-bound work, chosen on the same operators."""
NOVEL = 1.0
"""Distance above which a GPU is novel: one ratio differs by its unit."""


def device_position(device: Device) -> Float64[np.ndarray, " 3"]:
    """Logarithms of half-precision over fp32 peak, sustained share and ridge point, shape (3,).

    Raises:
        UnknownBandwidth: the device has no spec sheet.
        UnknownPrecision: its sheet has no peak that fp32 work could run at.
    """
    bandwidth = device.bandwidth_gbs
    fp32 = device.peak("fp32", matrix=True)
    peaks = device.peak_tflops
    half = max(peaks.get("fp16", 0.0), peaks.get("bf16", 0.0), fp32)
    sustained = min(1.0, power_capped_tflops(device, "fp32") / fp32)
    ratios: Float64[np.ndarray, " 3"] = np.array([half / fp32, sustained, 1e3 * fp32 / bandwidth])
    return np.asarray(np.log(ratios))


def distance(
    one: Float64[np.ndarray, "*n 3"],
    other: Float64[np.ndarray, "*m 3"],
    scales: Float64[np.ndarray, " 3"] = ARITHMETIC_SCALES,
) -> Float64[np.ndarray, "..."]:
    """Euclidean distances of positions, in units of `scales`; their shapes broadcast."""
    return np.asarray(np.sqrt((((one - other) / scales) ** 2).sum(axis=-1)))


def part_limits(device: Device) -> tuple[Limit, ...]:
    """A limit if the device is a partition of another one and only the whole was measured."""
    return tuple(Limit(caveat, LATENCY) for caveat in device.caveats if caveat.startswith(PART))


def novelty_of(
    position: Float64[np.ndarray, " 3"], known: Iterable[Float64[np.ndarray, " 3"]]
) -> float:
    """Distance of a device from the nearest device in the training set.

    Returns:
        0 for a known device, about 1 where one ratio differs by its unit, infinity without any
        known device.
        known.
    """
    positions = [*known]
    return float(distance(position, np.array(positions)).min()) if positions else float("inf")


def novelty_limits(device: Device, known: Iterable[Float64[np.ndarray, " 3"]]) -> tuple[Limit, ...]:
    """A limit for a GPU unlike every GPU in the training set; otherwise empty.

    Args:
        device: a device with a spec sheet.
        known: positions of the GPUs in the training set.
    """
    novelty = novelty_of(device_position(device), known)
    if not NOVEL < novelty < float("inf"):
        return ()
    message = (
        "the GPU differs from those of the training set: in matrix units, sustained clocks "
        f"and ridge point it is {novelty:.1f} away from the nearest; up to {NOVEL:g} is in "
        "domain"
    )
    return (Limit(message, LATENCY, "outside", "device_novelty", novelty, 0.0, NOVEL),)
