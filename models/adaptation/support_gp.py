"""What few measurements of a device say of a predictor's error there.

Each device that was adapted to has an error of its own, log(measured / predicted): an offset per
stratum (operator family, execution mode), or a process over the features where that predicts
left-out groups better (`forerun.models.adaptation.device_error`).
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.device import Device
from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.models.adaptation.device_error import DeviceError
from forerun.models.adaptation.held_out_errors import NORMAL_95, HeldOutErrors
from forerun.models.adaptation.support_set import SupportSet
from forerun.models.domain.feature_range import same_sheet, sheet

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
ENOUGH_ROWS = 10
"""Rows from which on a device counts as seen."""
MOST_ROWS = 1000
FARTHEST = 3.0
"""Standard deviations at which features are clipped, as linear trends must not run away."""
TOO_WIDE = 0.25
"""Typical left-out error from which on a device is called not predictable from few rows."""


@dataclass(frozen=True)
class Standardizer:
    """Features in units of their spread over the training rows.

    Attributes:
        centre: (d,) means.
        spread: (d,) standard deviations; infinite for columns that training never saw vary.
    """

    centre: Column
    spread: Column

    @classmethod
    def of(cls, matrix: Matrix) -> Self:
        """The means and deviations of (n, d) training rows."""
        spread = matrix.std(axis=0)
        return cls(matrix.mean(axis=0), np.where(spread > 1e-9, spread, np.inf))

    def apply(self, matrix: Matrix, width: int) -> Matrix:
        """Rows (n, width), clipped; columns are stretched so that `width` of them weigh alike.

        Strata with fewer columns than others so keep their distances when zeros are appended.
        """
        varying = max(1, int(np.isfinite(self.spread).sum()))
        scaled = np.clip((matrix - self.centre) / self.spread, -FARTHEST, FARTHEST)
        padded = np.zeros((len(matrix), width))
        padded[:, : matrix.shape[1]] = scaled * np.sqrt(width / varying)
        return padded

    def to_json(self) -> dict[str, list[float | None]]:
        """Plain lists; None for an infinite spread."""
        spread = [s if np.isfinite(s) else None for s in self.spread.tolist()]
        return {"centre": self.centre.tolist(), "spread": spread}

    @classmethod
    def from_json(cls, content: Mapping[str, Sequence[float | None]]) -> Self:
        """What `to_json` wrote."""
        spread = [np.inf if s is None else s for s in content["spread"]]
        return cls(np.array(content["centre"], dtype=np.float64), np.array(spread))


@dataclass(frozen=True)
class SupportGP:
    """Errors of all devices that were adapted to."""

    devices: tuple[DeviceError, ...] = field(default=())

    def updated(
        self,
        errors: Column,
        devices: Sequence[Device],
        strata: Sequence[str],
        features: Matrix,
        known: Container[Device] = (),
        groups: Sequence[str] | None = None,
        comparable: bool = False,
    ) -> "SupportGP":
        """New errors for the devices in these rows, in place of older ones of theirs.

        Args:
            errors: n values of log(measured / uncorrected prediction); NaN is left out.
            devices: n devices.
            strata: n names.
            features: (n, d) by `Standardizer`.
            known: devices in the training set.
            groups: n names of what was measured, such as digests of graphs: rows of one are left
                out together. Without them rows of one stratum with equal features are a group.
            comparable: whether features mean the same in all strata, as those of networks do in
                each execution mode; those of operator families do not.
        """
        sheets = [sheet(device) for device in devices]
        found = []
        for own in sorted(set(sheets)):
            mine = np.flatnonzero(np.isfinite(errors) & np.array([s == own for s in sheets]))
            mine = mine[-MOST_ROWS:]
            if not len(mine):
                continue
            rows = SupportSet.of(
                errors[mine],
                [strata[i] for i in mine.tolist()],
                features[mine],
                None if groups is None else [groups[i] for i in mine.tolist()],
                comparable,
            )
            found.append(DeviceError(own, rows, devices[mine[0]] in known))
        kept = [d for d in self.devices if not any(same_sheet(d.sheet, f.sheet) for f in found)]
        return SupportGP((*kept, *found))

    def of(self, device: Device) -> DeviceError | None:
        """The error on this device, where it was measured."""
        if not self.devices or not device.has_sheet:
            return None
        mine = sheet(device)
        return next((d for d in self.devices if same_sheet(d.sheet, mine)), None)

    def rows(self, device: Device) -> int:
        """Measurements behind a device's correction; 0 where there is none."""
        known = self.of(device)
        return 0 if known is None else len(known.rows)

    def correction(
        self,
        devices: Sequence[Device],
        strata: Sequence[str],
        features: Matrix,
        groups: Sequence[str] | None = None,
    ) -> tuple[Column, Column]:
        """Mean of the error and its standard deviation, each (n,).

        Zero and NaN for devices that were not adapted to; an infinite deviation where nothing that
        was measured resembles the row.

        Args:
            devices: n devices.
            strata: n names.
            features: (n, d) by `Standardizer`.
            groups: n names as `updated` took them; without them nothing named there is recognised.
        """
        mean, deviation = np.zeros(len(devices)), np.full(len(devices), np.nan)
        if not self.devices:
            return mean, deviation
        for device in set(devices):
            known = self.of(device)
            if known is not None:
                mine = np.array([d == device for d in devices])
                own = np.flatnonzero(mine)
                names = None if groups is None else [groups[i] for i in own.tolist()]
                asked = [strata[i] for i in own.tolist()]
                mean[mine], deviation[mine] = known.at(asked, features[mine], names)
        return mean, deviation

    def intervals(
        self, values: Column, deviation: Column, low: Column, high: Column
    ) -> tuple[Column, Column]:
        """Intervals around corrected values; never wider, as ratios, than those of a new device.

        Args:
            values: (n,) corrected.
            deviation: (n,) as `correction` gives it; NaN and infinity keep the bounds given.
            low: (n,) lower bound of an unseen device around the same values.
            high: (n,) upper bound.
        """
        reach = NORMAL_95 * deviation
        adapted = np.isfinite(deviation)
        nearer_low = np.where(adapted, np.maximum(low, values * np.exp(-reach)), low)
        nearer_high = np.where(adapted, np.minimum(high, values * np.exp(reach)), high)
        return np.minimum(nearer_low, values), np.maximum(nearer_high, values)

    def held_out(self, device: Device) -> HeldOutErrors | None:
        """Errors and coverage on groups left out one by one; None where nothing was measured."""
        known = self.of(device)
        return None if known is None else known.held_out()

    def limits(self, device: Device) -> tuple[str, ...]:
        """A line where the rows of a device do not make it predictable."""
        known = self.of(device)
        if known is None or len(known.rows) < 5 or known.left_out_error < TOO_WIDE:
            return ()
        return (
            f"{len(known.rows)} measurements do not make this device predictable: left out one by "
            f"one they are missed by {100 * np.expm1(known.left_out_error):.0f} %",
        )

    def to_json(self) -> list[dict[str, Any]]:
        """Plain dictionaries and lists."""
        return [{"sheet": d.sheet, "known": d.known, **d.rows.to_json()} for d in self.devices]

    @classmethod
    def from_json(cls, content: Sequence[Mapping[str, Any]]) -> Self:
        """The errors that `to_json` wrote."""
        return cls(
            tuple(
                DeviceError(tuple(d["sheet"]), SupportSet.from_json(d), bool(d["known"]))
                for d in content
            )
        )


def graph_digests(queries: Sequence[Query]) -> list[str]:
    """Names of the groups of network queries: runs of one graph are held out together."""
    return [q.workload.graph.digest if isinstance(q.workload, Network) else "" for q in queries]
