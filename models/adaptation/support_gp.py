"""Few-shot corrections of a predictor on devices, from support sets measured there.

The log error, log(measured / predicted), is modelled for each device that was adapted to: as an
offset for each stratum (operator family, execution mode), or by a Gaussian process over the
features where that predicts held-out groups better (`forerun.models.adaptation.device_error`).
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from forerun.data.columns import Column, Matrix, rows_by
from forerun.data.device import Device
from forerun.data.level import HALF_WIDTH
from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.models.adaptation.device_error import DeviceError
from forerun.models.adaptation.error_process import HeldOutErrors
from forerun.models.adaptation.support_set import SupportSet
from forerun.models.domain.feature_range import same_sheet, sheet
from forerun.models.limit import LATENCY, Limit

ENOUGH_ROWS = 10
"""Number of rows from which on an adapted device counts as seen."""
MOST_ROWS = 1000
"""Largest support set of a device; the latest rows are kept."""
FARTHEST = 3.0
"""Standard deviations at which features are clipped, to limit extrapolation of linear trends."""
TOO_WIDE = 0.25
"""Median leave-one-group-out error from which on a limit reports the device as not predictable."""


@dataclass(frozen=True)
class Standardizer:
    """Standardises features by their means and standard deviations over the training rows.

    Attributes:
        centre: (d,) means.
        spread: (d,) standard deviations; infinite for columns that are constant in training.
    """

    centre: Column
    spread: Column

    @classmethod
    def of(cls, matrix: Matrix) -> Self:
        """Means and standard deviations of training rows of shape (n, d)."""
        spread = matrix.std(axis=0)
        return cls(matrix.mean(axis=0), np.where(spread > 1e-9, spread, np.inf))

    def apply(self, matrix: Matrix, width: int) -> Matrix:
        """Standardised and clipped rows, padded with zeros to shape (n, width).

        The columns are scaled so that distances do not depend on the number of varying columns.

        Args:
            matrix: (n, d) features, d at most `width`.
            width: number of columns of the result.
        """
        varying = max(1, int(np.isfinite(self.spread).sum()))
        scaled = np.clip((matrix - self.centre) / self.spread, -FARTHEST, FARTHEST)
        padded = np.zeros((len(matrix), width))
        padded[:, : matrix.shape[1]] = scaled * np.sqrt(width / varying)
        return padded


@dataclass(frozen=True)
class SupportGP:
    """Errors of a predictor on all devices that were adapted to.

    Attributes:
        devices: error on each device.
    """

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
        together: bool = False,
    ) -> "SupportGP":
        """Errors with those of the devices in these rows replaced.

        Args:
            errors: n values of log(measured / uncorrected prediction); NaN is left out.
            devices: n devices.
            strata: n names of strata.
            features: (n, d) features scaled by `Standardizer`.
            known: devices in the training set.
            groups: n names of groups, such as digests of graphs, which are held out as a whole. If
                None, rows of one stratum with equal features are a group.
            comparable: whether features have the same meaning in all strata, as those of networks
                have in all execution modes; features of operator families do not.
            together: whether each of these devices has the rows of all of them.
        """
        updated = []
        for own, of_device in rows_by(map(sheet, devices)).items():
            indices = np.arange(len(errors)) if together else of_device
            indices = indices[np.isfinite(errors[indices])][-MOST_ROWS:]
            if not len(indices):
                continue
            rows = SupportSet.of(
                errors[indices],
                [strata[i] for i in indices.tolist()],
                features[indices],
                None if groups is None else [groups[i] for i in indices.tolist()],
                comparable,
            )
            updated.append(DeviceError(own, rows, devices[of_device[0]] in known))
        kept = [d for d in self.devices if not any(same_sheet(d.sheet, u.sheet) for u in updated)]
        return SupportGP((*kept, *updated))

    def of(self, device: Device) -> DeviceError | None:
        """The error on this device; None if it was not adapted to."""
        if not self.devices or not device.has_sheet:
            return None
        own = sheet(device)
        return next((d for d in self.devices if same_sheet(d.sheet, own)), None)

    def rows(self, device: Device) -> int:
        """Number of rows in a device's support set; 0 if it was not adapted to."""
        known = self.of(device)
        return 0 if known is None else len(known.rows)

    def correction(
        self,
        devices: Sequence[Device],
        strata: Sequence[str],
        features: Matrix,
        groups: Sequence[str] | None = None,
    ) -> tuple[Column, Column]:
        """Mean of the error and its standard deviation in log units, each (n,).

        Zero and NaN for devices that were not adapted to. The deviation is infinite far from the
        support set.

        Args:
            devices: n devices.
            strata: n names of strata.
            features: (n, d) features scaled by `Standardizer`.
            groups: n names of groups, as in `updated`; if None, no measured group is recognised by
                its name.
        """
        mean, deviation = np.zeros(len(devices)), np.full(len(devices), np.nan)
        if not self.devices:
            return mean, deviation
        for device in set(devices):
            known = self.of(device)
            if known is not None:
                rows = np.array([d == device for d in devices])
                own = np.flatnonzero(rows)
                names = None if groups is None else [groups[i] for i in own.tolist()]
                own_strata = [strata[i] for i in own.tolist()]
                mean[rows], deviation[rows] = known.at(own_strata, features[rows], names)
        return mean, deviation

    def intervals(
        self, values: Column, deviation: Column, low: Column, high: Column
    ) -> tuple[Column, Column]:
        """Lower and upper bounds around corrected values, never wider than on an unseen device.

        Args:
            values: (n,) corrected predictions.
            deviation: (n,) from `correction`; where NaN or infinite, `low` and `high` are returned.
            low: (n,) lower bounds for an unseen device around the same values.
            high: (n,) upper bounds.
        """
        reach = HALF_WIDTH * deviation
        adapted = np.isfinite(deviation)
        nearer_low = np.where(adapted, np.maximum(low, values * np.exp(-reach)), low)
        nearer_high = np.where(adapted, np.minimum(high, values * np.exp(reach)), high)
        return np.minimum(nearer_low, values), np.maximum(nearer_high, values)

    def held_out(self, device: Device) -> HeldOutErrors | None:
        """Leave-one-group-out errors and coverage; None if the device was not adapted to."""
        known = self.of(device)
        return None if known is None else known.held_out()

    def limits(self, device: Device) -> tuple[Limit, ...]:
        """A limit where leave-one-group-out errors on a device are large, else nothing."""
        known = self.of(device)
        if known is None or len(known.rows) < 5 or known.left_out_error < TOO_WIDE:
            return ()
        message = (
            f"{len(known.rows)} measurements do not make this device predictable: left out one by "
            f"one the error is {100 * np.expm1(known.left_out_error):.0f} %"
        )
        return (Limit(message, LATENCY),)


def graph_digests(queries: Sequence[Query]) -> list[str]:
    """Names of groups of network queries: the digest of the graph; empty for other workloads."""
    return [q.workload.graph.digest if isinstance(q.workload, Network) else "" for q in queries]
