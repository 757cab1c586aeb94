"""Corrections of a predictor by constant factors, shrunk to those of a device and to one.

The error of a predictor on a new device is mostly a constant for each class of work ("stratum"):
execution mode, operator family, program, suite. A few rows determine the level of a device better
than that of a stratum, so strata are shrunk to the device's level, and that to zero in log space.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from forerun.data.columns import Column, Mask, Names, Positions, rows_by
from forerun.data.device import Device
from forerun.models.domain.feature_range import Sheet, same_sheet, sheet

PRIOR_ROWS = 3.0
"""Pseudo-observations without an error that shrink a correction towards zero."""


def shrunk_medians(
    residuals: Column, strata: Names, prior_rows: float = PRIOR_ROWS
) -> dict[str, float]:
    """Stratum -> median of its m residuals times m / (m + `prior_rows`).

    Args:
        residuals: (n,) log(measured / predicted); NaN is left out.
        strata: n labels; one without a residual has no correction.
        prior_rows: pseudo-observations.
    """
    known = np.isfinite(residuals)
    return {
        stratum: len(rows) / (len(rows) + prior_rows) * float(np.median(residuals[known][rows]))
        for stratum, rows in rows_by(strata[known].tolist()).items()
    }


DEVICE_DEVIATION = 0.2
STRATUM_DEVIATION = 0.2
"""Standard deviations of the priors of the device's level and of strata, in log units. As they are
equal, half of the error of one stratum is attributed to the whole device. Errors of whole networks
on RTX 3090 and 4090, each held out, are 0.13 to 0.17; those of NeuSight's operator families on P4,
P100, V100 and T4 are 0.05 to 0.4."""
KNOWN_FACTOR = 0.3
"""Factor on both deviations for a device in the training set."""
DEVIATION_PRIOR, DEVIATION_PRIOR_ROWS = 0.15, 3.0
"""Prior standard deviation of the errors around their stratum's offset, and its weight in rows."""
_MEDIAN_EFFICIENCY = np.pi / 2.0
_MAD_TO_DEVIATION = 1.4826


@dataclass(frozen=True)
class Offsets:
    """Offsets of one device, in log space.

    The model has two levels: the offsets of strata are normally distributed around the level of the
    device, and that level around zero. The offset of a stratum is the median over its groups
    (models, operator shapes), so that a group with many runs counts once; it is shrunk according to
    its standard error.

    Attributes:
        level: offset of strata without a measurement.
        strata: name of a stratum -> offset.
        deviation: robust standard deviation of the errors around the offsets.
    """

    level: float
    strata: Mapping[str, float]
    deviation: float

    @classmethod
    def fit(
        cls, errors: Column, strata: Names, groups: Positions, prior_factor: float = 1.0
    ) -> Self:
        """Posterior means of the two-level model.

        Args:
            errors: (n,) log(measured / predicted); with n = 0, all offsets are zero.
            strata: (n,) names of strata.
            groups: (n,) codes of groups; rows of one group in a stratum count as one.
            prior_factor: factor on the standard deviations of the prior.
        """
        names = np.unique(strata)
        values = [_group_values(errors, groups, strata == name) for name in names]
        medians = np.array([np.median(v) for v in values])
        deviation = _robust_deviation([v - m for v, m in zip(values, medians, strict=True)])
        count = np.array([len(v) for v in values])
        variance = _MEDIAN_EFFICIENCY * deviation**2 / np.maximum(count, 1)
        between = (STRATUM_DEVIATION * prior_factor) ** 2
        weight = 1.0 / (variance + between)
        level = float(weight @ medians) / float(
            weight.sum() + (DEVICE_DEVIATION * prior_factor) ** -2
        )
        shrunk = (medians * between + level * variance) / (between + variance)
        offsets = {str(n): float(s) for n, s in zip(names, shrunk, strict=True)}
        return cls(level, offsets, deviation)

    def at(self, strata: Sequence[str] | Names) -> Column:
        """Offset of each of n strata, shape (n,)."""
        return np.array([self.strata.get(str(s), self.level) for s in strata], dtype=np.float64)


def _group_values(errors: Column, groups: Positions, rows: Mask) -> Column:
    """Median error of each group in these rows; the errors themselves if no group has several."""
    selected, of_group = errors[rows], groups[rows]
    codes, count = np.unique(of_group, return_counts=True)
    if count.max(initial=1) == 1:
        return selected
    return np.array([np.median(selected[of_group == code]) for code in codes])


def _robust_deviation(residuals: Sequence[Column]) -> float:
    """Standard deviation from the median absolute residual, shrunk to `DEVIATION_PRIOR`."""
    if not residuals:
        return DEVIATION_PRIOR
    pooled = np.concatenate(residuals)
    freedom = max(0, len(pooled) - len(residuals))
    observed = (_MAD_TO_DEVIATION * float(np.median(np.abs(pooled)))) ** 2 * freedom
    prior = DEVIATION_PRIOR**2 * DEVIATION_PRIOR_ROWS
    return float(np.sqrt((prior + observed) / (DEVIATION_PRIOR_ROWS + freedom)))


KNOWN_ROWS = 30.0
"""Pseudo-observations without an error, for a device in the training set."""
ENOUGH_ROWS = 10
"""Number of rows from which on an adapted device counts as seen."""


@dataclass(frozen=True, slots=True)
class DeviceScale:
    """Corrections of one device, in log units.

    Attributes:
        sheet: spec sheet that identifies the device.
        rows: number of measurements.
        level: correction of classes without a measurement.
        classes: class -> correction.
    """

    sheet: Sheet
    rows: int
    level: float
    classes: Mapping[str, float]


@dataclass(frozen=True)
class ShrunkScalars:
    """Corrections of all devices that were adapted to.

    The residual of a class is averaged with `PRIOR_ROWS` pseudo-observations at the device's level,
    which is the posterior mean of a normal distribution with known variance. Without shrinkage of
    classes, errors on batched products increased.

    Attributes:
        devices: corrections of each device.
    """

    devices: tuple[DeviceScale, ...] = field(default=())

    def updated(
        self,
        residuals: Column,
        devices: Sequence[Device],
        strata: Sequence[str],
        known: Container[Device] = (),
        weights: Column | None = None,
    ) -> "ShrunkScalars":
        """Corrections with those of the devices in these rows replaced.

        Args:
            residuals: n values of log(measured / uncorrected prediction); NaN is left out.
            devices: n devices.
            strata: n classes.
            known: devices in the training set; their corrections are shrunk by `KNOWN_ROWS`.
            weights: n shares, 0 to 1, that the rows count for; None for whole rows.
        """
        shares = np.ones(len(residuals)) if weights is None else weights
        updated = []
        for own, of_device in rows_by(map(sheet, devices)).items():
            rows = of_device[~np.isnan(residuals[of_device])]
            if len(rows):
                pseudo_rows = KNOWN_ROWS if devices[rows[0]] in known else 1.0
                classes = np.array(strata)[rows]
                updated.append(_scale(own, residuals[rows], shares[rows], classes, pseudo_rows))
        kept = [d for d in self.devices if not any(same_sheet(d.sheet, u.sheet) for u in updated)]
        return ShrunkScalars((*kept, *updated))

    def correction(self, devices: Sequence[Device], strata: Sequence[str]) -> Column:
        """Corrections in log units, shape (n,); zero for devices that were not adapted to."""
        if not self.devices:
            return np.zeros(len(devices))
        pairs = zip(devices, strata, strict=True)
        return np.array([self._correction(device, stratum) for device, stratum in pairs])

    def rows(self, device: Device) -> int:
        """Number of measurements of a device; 0 if it was not adapted to."""
        scale = self._of(device)
        return 0 if scale is None else scale.rows

    def covers(self, device: Device, stratum: str) -> bool:
        """Whether a class of work was measured on a device."""
        scale = self._of(device)
        return scale is not None and stratum in scale.classes

    def _of(self, device: Device) -> DeviceScale | None:
        if not self.devices or not device.has_sheet:
            return None
        own = sheet(device)
        return next((d for d in self.devices if same_sheet(d.sheet, own)), None)

    def _correction(self, device: Device, stratum: str) -> float:
        scale = self._of(device)
        return 0.0 if scale is None else scale.classes.get(stratum, scale.level)


def _scale(
    own: Sheet, residuals: Column, shares: Column, strata: Names, pseudo_rows: float
) -> DeviceScale:
    """Corrections of one device from its residuals, shrunk by a number of pseudo-observations."""
    count = float(shares.sum())
    level = _median(residuals, shares) * count / (count + pseudo_rows)
    classes = {}
    for stratum in np.unique(strata):
        mine = strata == stratum
        count = float(shares[mine].sum())
        weight = count / (count + max(PRIOR_ROWS, pseudo_rows))
        median = _median(residuals[mine], shares[mine])
        classes[str(stratum)] = weight * median + (1.0 - weight) * level
    return DeviceScale(own, len(residuals), level, classes)


def _median(values: Column, shares: Column) -> float:
    """Weighted median, between the middle values where two share the middle."""
    if (shares == 1.0).all():
        return float(np.median(values))
    order = np.argsort(values)
    middles = np.cumsum(shares[order]) - shares[order] / 2.0
    return float(np.interp(shares.sum() / 2.0, middles, values[order]))
