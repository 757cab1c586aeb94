"""Domain of a training set: ranges of its features, its devices, and how new another device is.

The position of a device consists of logarithms of ratios on its spec sheet: half-precision over
fp32 peak (which depends on the generation of matrix units, and thus of kernel libraries), the share
of the fp32 peak that the power limit sustains, and the ridge point (Williams et al. 2009), which
separates stacked from graphics memory. The unit of each ratio is the change beyond which kernels
behave differently. A device is as new as it is far from the nearest one of the training set.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np

from forerun.data.device import Device
from forerun.data.shapes import Float64
from forerun.features.operators.roofline import power_capped_tflops
from forerun.models.limit import LATENCY, Limit

ARITHMETIC_SCALES: Float64[np.ndarray, " 3"] = np.array([0.5, 0.35, 0.5])
"""Units of the ratios for compute-bound work, and for novelty.

Chosen on operators of NeuSight's five training GPUs, each held out in turn.
"""
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


def novelty_of(
    position: Float64[np.ndarray, " 3"], known: Iterable[Float64[np.ndarray, " 3"]]
) -> float:
    """Distance of a device from the nearest device in the training set.

    Returns:
        0 for a known device; about 1 where one ratio differs by its unit; infinite if no device is
        known.
    """
    positions = [*known]
    return float(distance(position, np.array(positions)).min()) if positions else float("inf")


def novelty_limits(device: Device, known: Iterable[Float64[np.ndarray, " 3"]]) -> tuple[Limit, ...]:
    """A limit for a GPU that is unlike every GPU in the training set; otherwise nothing.

    Args:
        device: a device with a spec sheet.
        known: positions of the GPUs in the training set.
    """
    novelty = novelty_of(device_position(device), known)
    if not NOVEL < novelty < float("inf"):
        return ()
    message = (
        f"the GPU is unlike those of the training rows: its matrix units, sustained clocks and "
        f"ridge point lie {novelty:.1f} away from the nearest, up to {NOVEL:g} is in domain"
    )
    return (Limit(message, LATENCY, "outside", "device_novelty", novelty, 0.0, NOVEL),)


SAME_DEVICE = 0.02
"""Largest difference of the logarithm of a figure between sheets of the same device."""
DEVICES_KEPT = 4096
Sheet = tuple[float, ...]
"""Logarithms of figures on a spec sheet, 0 for one that is not known."""


@dataclass(frozen=True)
class FeatureRange:
    """Lowest and highest value of each feature in the training set, in the order of `names`."""

    names: tuple[str, ...]
    low: Float64[np.ndarray, " features"]
    high: Float64[np.ndarray, " features"]

    @classmethod
    def of(cls, names: Sequence[str], matrix: Float64[np.ndarray, "n {len(names)}"]) -> Self:
        """Range over the rows of an (n, len(names)) matrix; NaN entries are ignored."""
        return cls(tuple(names), np.nanmin(matrix, axis=0), np.nanmax(matrix, axis=0))

    def clip(
        self, matrix: Float64[np.ndarray, "n {len(self.names)}"]
    ) -> Float64[np.ndarray, "n {len(self.names)}"]:
        """Features clipped to the range, because trees cannot extrapolate."""
        return np.asarray(np.clip(matrix, self.low, self.high))

    def outside(
        self,
        row: Float64[np.ndarray, " {len(self.names)}"],
        metric: str | None = None,
        tolerance: float = 0.1,
    ) -> tuple[Limit, ...]:
        """One limit for each feature of one row that is outside the range.

        Args:
            row: (len(names),) features.
            metric: what the limits concern, as in `Limit`.
            tolerance: how far beyond the range still counts as inside, as a share of its width.
        """
        (limits,) = self.outside_each(row[None, :], metric, tolerance)
        return limits

    def outside_each(
        self,
        matrix: Float64[np.ndarray, "n {len(self.names)}"],
        metric: str | None = None,
        tolerance: float = 0.1,
    ) -> list[tuple[Limit, ...]]:
        """As `outside`, of each row of a matrix (n, len(names))."""
        slack = tolerance * (self.high - self.low) + 1e-9
        far = (matrix < self.low - slack) | (matrix > self.high + slack)
        found: list[tuple[Limit, ...]] = [()] * len(matrix)
        for row in np.flatnonzero(far.any(axis=1)).tolist():
            found[row] = tuple(
                Limit(
                    message="",
                    metric=metric,
                    feature=self.names[i],
                    value=float(matrix[row, i]),
                    low=float(self.low[i]),
                    high=float(self.high[i]),
                )
                for i in np.flatnonzero(far[row]).tolist()
            )
        return found


@dataclass(frozen=True)
class KnownDevices:
    """Devices of a training set, identified by their spec sheets and not by their names.

    Attributes:
        sheets: one tuple for each device, as `sheet` returns it.
    """

    sheets: tuple[Sheet, ...] = ()

    @classmethod
    def of(cls, devices: Sequence[Device]) -> Self:
        """The distinct spec sheets of these devices; devices without one are ignored."""
        return cls(tuple(sorted({sheet(device) for device in set(devices) if device.has_sheet})))

    def __contains__(self, device: object) -> bool:
        if not isinstance(device, Device) or not device.has_sheet:
            return False
        return _is_among(sheet(device), self.sheets)


@lru_cache(maxsize=DEVICES_KEPT)
def _is_among(own: Sheet, sheets: tuple[Sheet, ...]) -> bool:
    return own in sheets or any(same_sheet(own, known) for known in sheets)


def same_sheet(one: Sheet, other: Sheet) -> bool:
    """Whether two sheets differ by at most 2 % in each figure that both of them give."""
    return all(abs(a - b) <= SAME_DEVICE or not (a and b) for a, b in zip(one, other, strict=True))


@lru_cache(maxsize=DEVICES_KEPT)
def sheet(device: Device) -> Sheet:
    """Log of bandwidth, fp32 peak, half-precision peak, compute units and design power.

    Raises:
        UnknownBandwidth: the device has no spec sheet.
    """
    peaks = device.peak_tflops
    figures = (
        device.bandwidth_gbs,
        peaks.get("fp32") or max(peaks.values()),
        peaks.get("fp16") or peaks.get("bf16") or 1.0,
        float(device.compute_units or 1),
        device.tdp_w or 1.0,
    )
    return tuple(round(float(np.log(figure)), 6) for figure in figures)
