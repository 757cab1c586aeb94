"""Feature ranges and devices of a training set, and limits for queries outside them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np

from forerun.data.device import Device
from forerun.data.shapes import Bool, Float64
from forerun.models.limit import Limit

SAME_DEVICE = 0.02
"""Largest log difference of a figure between two sheets of the same device."""
DEVICES_KEPT = 4096
Sheet = tuple[float, ...]
"""Logarithms of figures on a spec sheet; 0 for an unknown figure."""


@dataclass(frozen=True)
class FeatureRange:
    """Lowest and highest training value of each feature, in the order of `names`."""

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
        """Features clipped to the range, because trees do not extrapolate."""
        return np.asarray(np.clip(matrix, self.low, self.high))

    def outside(
        self,
        row: Float64[np.ndarray, " {len(self.names)}"],
        metric: str | None = None,
        tolerance: float = 0.1,
    ) -> tuple[Limit, ...]:
        """One limit for each feature of a row that is outside the range.

        Args:
            row: (len(names),) features.
            metric: metric that the limits concern, as in `Limit`.
            tolerance: distance beyond the range that still counts as inside, as a share of its
                width.
        """
        (limits,) = self.outside_each(row[None, :], metric, tolerance)
        return limits

    def is_outside(
        self, matrix: Float64[np.ndarray, "n {len(self.names)}"], tolerance: float = 0.1
    ) -> Bool[np.ndarray, "n {len(self.names)}"]:
        """Which features of a matrix `outside` names, (n, len(names))."""
        slack = tolerance * (self.high - self.low) + 1e-9
        return np.asarray((matrix < self.low - slack) | (matrix > self.high + slack))

    def outside_each(
        self,
        matrix: Float64[np.ndarray, "n {len(self.names)}"],
        metric: str | None = None,
        tolerance: float = 0.1,
    ) -> list[tuple[Limit, ...]]:
        """`outside` for each row of a matrix (n, len(names))."""
        far = self.is_outside(matrix, tolerance)
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
    """Devices of a training set, identified by their spec sheets rather than by name.

    Attributes:
        sheets: one tuple per device, as returned by `sheet`.
    """

    sheets: tuple[Sheet, ...] = ()

    @classmethod
    def of(cls, devices: Sequence[Device]) -> Self:
        """The distinct spec sheets of these devices; devices without a sheet are ignored."""
        return cls(tuple(sorted({sheet(device) for device in set(devices) if device.has_sheet})))

    def __contains__(self, device: object) -> bool:
        if not isinstance(device, Device) or not device.has_sheet:
            return False
        return _is_among(sheet(device), self.sheets)


@lru_cache(maxsize=DEVICES_KEPT)
def _is_among(key: Sheet, sheets: tuple[Sheet, ...]) -> bool:
    return key in sheets or any(same_sheet(key, known) for known in sheets)


def same_sheet(one: Sheet, other: Sheet) -> bool:
    """Whether two sheets differ by at most 2 % in every figure that both give."""
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
