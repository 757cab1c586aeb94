"""A scalar for each device and class of work, shrunk toward one for the device, and that to none.

From a few rows a device's own level is known better than any class's; so a class's mean residual
counts as much as its rows against `PRIOR_ROWS` imagined rows at the device's level (the posterior
mean of a normal with known spread). Batched products got worse from unshrunk class scalars.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.data.device import Device
from forerun.models.domain.feature_range import Sheet, same_sheet, sheet

Column = NDArray[np.float64]
PRIOR_ROWS = 3.0
KNOWN_ROWS = 30.0
"""Imagined rows without an error, of a device that taught the predictor."""
ENOUGH_ROWS = 10
"""Rows from which on a device counts as seen."""


@dataclass(frozen=True, slots=True)
class DeviceScale:
    """Corrections of one device, in log space.

    Attributes:
        sheet: which device, by its spec sheet.
        rows: how many measurements stand behind it.
        level: correction of every class.
        classes: class -> correction, in place of `level`.
    """

    sheet: Sheet
    rows: int
    level: float
    classes: Mapping[str, float]


@dataclass(frozen=True)
class ShrunkScalars:
    """Corrections of all devices that were adapted to."""

    devices: tuple[DeviceScale, ...] = field(default=())

    def updated(
        self,
        residuals: Column,
        devices: Sequence[Device],
        strata: Sequence[str],
        known: Container[Device] = (),
    ) -> "ShrunkScalars":
        """New corrections for the devices in these rows, in place of older ones of theirs.

        Args:
            residuals: n values of log(measured / uncorrected prediction); NaN is left out.
            devices: n devices.
            strata: n classes.
            known: devices that taught the predictor: they are shrunk to none by `KNOWN_ROWS`.
        """
        sheets = [sheet(device) for device in devices]
        measured = ~np.isnan(residuals)
        found = []
        for one in sorted(set(sheets)):
            mine = measured & np.array([s == one for s in sheets])
            if mine.any():
                taught = devices[int(np.flatnonzero(mine)[0])] in known
                imagined = KNOWN_ROWS if taught else 1.0
                found.append(_scale(one, residuals[mine], np.array(strata)[mine], imagined))
        kept = [d for d in self.devices if not any(same_sheet(d.sheet, f.sheet) for f in found)]
        return ShrunkScalars((*kept, *found))

    def correction(self, devices: Sequence[Device], strata: Sequence[str]) -> Column:
        """Corrections in log space, shape (n,); zero for devices not adapted to."""
        if not self.devices:
            return np.zeros(len(devices))
        pairs = zip(devices, strata, strict=True)
        return np.array([self._one(device, stratum) for device, stratum in pairs])

    def rows(self, device: Device) -> int:
        """Measurements behind a device's correction; 0 where there is none."""
        scale = self._of(device)
        return 0 if scale is None else scale.rows

    def _of(self, device: Device) -> DeviceScale | None:
        if not device.has_sheet:
            return None
        mine = sheet(device)
        return next((d for d in self.devices if same_sheet(d.sheet, mine)), None)

    def _one(self, device: Device, stratum: str) -> float:
        scale = self._of(device)
        return 0.0 if scale is None else scale.classes.get(stratum, scale.level)

    def to_json(self) -> list[dict[str, Any]]:
        """Plain dictionaries and lists."""
        return [
            {"sheet": d.sheet, "rows": d.rows, "level": d.level, "classes": dict(d.classes)}
            for d in self.devices
        ]

    @classmethod
    def from_json(cls, content: Sequence[Mapping[str, Any]]) -> "ShrunkScalars":
        """The corrections that `to_json` wrote."""
        return cls(
            tuple(
                DeviceScale(
                    tuple(d["sheet"]),
                    int(d["rows"]),
                    float(d["level"]),
                    {k: float(v) for k, v in d["classes"].items()},
                )
                for d in content
            )
        )


def _scale(one: Sheet, residuals: Column, strata: NDArray[np.str_], imagined: float) -> DeviceScale:
    level = float(np.median(residuals)) * len(residuals) / (len(residuals) + imagined)
    classes = {}
    for stratum in np.unique(strata):
        mine = residuals[strata == stratum]
        weight = len(mine) / (len(mine) + max(PRIOR_ROWS, imagined))
        classes[str(stratum)] = weight * float(np.median(mine)) + (1.0 - weight) * level
    return DeviceScale(one, len(residuals), level, classes)
