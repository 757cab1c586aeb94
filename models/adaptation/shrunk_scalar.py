"""Corrects predictions per device and class of work, with shrinkage.

A few rows determine a device's level better than a class's. The residual of a class is therefore
averaged with `PRIOR_ROWS` pseudo-observations at the device's level: the posterior mean of a normal
with known variance. Without this shrinkage, errors on batched products increased. `shrunk_medians`
shrinks programs, applications or suites towards zero in the same way.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from forerun.data.columns import Column, Names, rows_by
from forerun.data.device import Device
from forerun.models.domain.feature_range import Sheet, same_sheet, sheet

PRIOR_ROWS = 3.0
"""Zero-error pseudo-observations that shrink a correction."""


def shrunk_medians(
    residuals: Column, strata: Names, prior_rows: float = PRIOR_ROWS
) -> dict[str, float]:
    """Stratum -> median of its m residuals times m / (m + `prior_rows`).

    Args:
        residuals: (n,) log(measured / predicted); NaN is ignored.
        strata: n labels; a stratum without residuals gets no correction.
        prior_rows: number of pseudo-observations.
    """
    known = np.isfinite(residuals)
    return {
        stratum: len(rows) / (len(rows) + prior_rows) * float(np.median(residuals[known][rows]))
        for stratum, rows in rows_by(strata[known].tolist()).items()
    }


KNOWN_ROWS = 30.0
"""Zero-error pseudo-observations for a device in the training set."""
ENOUGH_ROWS = 10
"""Number of rows from which a device counts as seen after adaptation."""


@dataclass(frozen=True, slots=True)
class DeviceScale:
    """Corrections of one device, in log units.

    Attributes:
        sheet: spec sheet that identifies the device.
        rows: number of measurements.
        level: correction of classes without measurements.
        classes: class -> correction.
    """

    sheet: Sheet
    rows: int
    level: float
    classes: Mapping[str, float]


@dataclass(frozen=True)
class ShrunkScalars:
    """Corrections of all devices with measurements.

    Attributes:
        devices: corrections per device.
    """

    devices: tuple[DeviceScale, ...] = field(default=())

    def updated(
        self,
        residuals: Column,
        devices: Sequence[Device],
        strata: Sequence[str],
        known: Container[Device] = (),
    ) -> "ShrunkScalars":
        """A copy in which the devices of these rows have new corrections.

        Args:
            residuals: n values of log(measured / uncorrected prediction); NaN is ignored.
            devices: n devices.
            strata: n classes.
            known: devices in the training set, whose corrections are shrunk by `KNOWN_ROWS`.
        """
        updated = []
        for key, of_device in rows_by(map(sheet, devices)).items():
            rows = of_device[~np.isnan(residuals[of_device])]
            if len(rows):
                pseudo_rows = KNOWN_ROWS if devices[rows[0]] in known else 1.0
                classes = np.array(strata)[rows]
                updated.append(_scale(key, residuals[rows], classes, pseudo_rows))
        kept = [d for d in self.devices if not any(same_sheet(d.sheet, u.sheet) for u in updated)]
        return ShrunkScalars((*kept, *updated))

    def correction(self, devices: Sequence[Device], strata: Sequence[str]) -> Column:
        """Corrections in log units, shape (n,); zero for devices without measurements."""
        if not self.devices:
            return np.zeros(len(devices))
        pairs = zip(devices, strata, strict=True)
        return np.array([self._correction(device, stratum) for device, stratum in pairs])

    def rows(self, device: Device) -> int:
        """Number of measurements of a device; 0 if there are none."""
        scale = self._of(device)
        return 0 if scale is None else scale.rows

    def _of(self, device: Device) -> DeviceScale | None:
        if not self.devices or not device.has_sheet:
            return None
        key = sheet(device)
        return next((d for d in self.devices if same_sheet(d.sheet, key)), None)

    def _correction(self, device: Device, stratum: str) -> float:
        scale = self._of(device)
        return 0.0 if scale is None else scale.classes.get(stratum, scale.level)


def _scale(key: Sheet, residuals: Column, strata: Names, pseudo_rows: float) -> DeviceScale:
    """Corrections of one device from its residuals, shrunk by pseudo-observations."""
    count = len(residuals)
    level = float(np.median(residuals)) * count / (count + pseudo_rows)
    classes = {}
    for stratum, rows in rows_by(strata.tolist()).items():
        weight = len(rows) / (len(rows) + max(PRIOR_ROWS, pseudo_rows))
        classes[stratum] = weight * float(np.median(residuals[rows])) + (1.0 - weight) * level
    return DeviceScale(key, count, level, classes)
