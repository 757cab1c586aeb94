"""Few-shot corrections of a predictor on devices, learned from support sets measured there.

The log error, log(measured / predicted), is modelled per device. The baseline is an offset per
stratum (operator family, execution mode). A Gaussian process over the features replaces it, fully
or by half, only where its error on held-out groups is lower by more than the noise of the paired
comparison. Predictions match the support set within its noise. Intervals come from leave-one-group-
out errors, with a Student quantile for the number of groups; away from the support set they widen
to those of an unseen device.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from forerun.data.columns import Column, Matrix, Names, Positions, rows_by
from forerun.data.device import Device
from forerun.data.level import HALF_WIDTH
from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.models.adaptation.error_process import (
    KNOWN_FACTOR,
    NETWORK_EXPERTS,
    OPERATOR_EXPERTS,
    ErrorProcess,
    LeftOut,
    Offsets,
    leave_groups_out,
)
from forerun.models.adaptation.support_set import SupportSet
from forerun.models.conformal import student_quantile
from forerun.models.domain.feature_range import Sheet, same_sheet, sheet
from forerun.models.limit import LATENCY, Limit

PRIOR_DEVIATION, PRIOR_GROUPS = 0.1, 3.0
"""Prior standard deviation of the errors in log units, and its weight in groups: residuals of
networks from the offsets have standard deviations of 0.09 to 0.15 on RTX 3090 and RTX 4090."""
STRATUM_GROUPS = 4.0
"""Pseudo-observations, in groups, that shrink a stratum's variance towards the pooled one."""
CLIP = 6.0
"""Clipping threshold of errors, in median absolute errors scaled to a standard deviation."""
SELECTION = 1.12
"""Factor on deviations, because the weights of experts and process were selected on the same
errors. With it, 9 of 10 rows of unmeasured families are covered on RTX 3090 and RTX 4090."""
MOST_WIDENED = 20.0
"""Largest widening of a deviation away from the support set; beyond it the deviation is infinite.
The interval of an unseen device is narrower there, and the exponential must not overflow."""
_MAD_TO_DEVIATION = 1.4826


@dataclass(frozen=True)
class GroupDeviations:
    """Standard deviations of leave-one-group-out errors per stratum, shrunk towards the pooled one.

    Attributes:
        squares: stratum -> group code -> mean squared error.
    """

    squares: Mapping[str, Mapping[int, float]]

    @classmethod
    def of(cls, errors: Column, strata: Names, groups: Positions) -> Self:
        """The deviations of k leave-one-group-out errors.

        Args:
            errors: (k,) log(measured / predicted).
            strata: (k,) names of strata.
            groups: (k,) group codes.
        """
        squared = errors**2
        squares: dict[str, dict[int, float]] = {}
        for name in np.unique(strata):
            rows = strata == name
            limit = CLIP * _MAD_TO_DEVIATION * float(np.median(np.abs(errors[rows])))
            clipped = np.minimum(squared, max(limit, PRIOR_DEVIATION) ** 2)
            squares[str(name)] = {
                int(g): float(clipped[rows & (groups == g)].mean()) for g in np.unique(groups[rows])
            }
        return cls(squares)

    @property
    def pooled(self) -> float:
        """Pooled standard deviation over all strata."""
        return float(np.sqrt(self._pooled_square(None)))

    def deviation(self, strata: Names, nearest: Column) -> Column:
        """Standard deviation for which `HALF_WIDTH` gives the half-width of an interval, shape
        (n,).

        It is infinite in strata with fewer than two groups. It grows from one to two times the
        reach of the support set, and is infinite beyond.

        Args:
            strata: n names of strata.
            nearest: (n,) distance to the support set in units of its reach.
        """
        by_stratum = {str(name): self._deviation(str(name)) for name in np.unique(strata)}
        deviations = np.array([by_stratum[str(name)] for name in strata], dtype=np.float64)
        closeness = np.clip(2.0 - nearest, 0.0, 1.0)
        near = closeness * MOST_WIDENED > 1.0
        return np.where(near, deviations / np.where(near, closeness, 1.0), np.inf)

    def _pooled_square(self, without: int | None) -> float:
        """Pooled variance including its prior; `without` is the code of a group to leave out."""
        values = [s for by in self.squares.values() for g, s in by.items() if g != without]
        groups = {g for by in self.squares.values() for g in by if g != without}
        mean = float(np.mean(values)) if values else 0.0
        total = PRIOR_GROUPS * PRIOR_DEVIATION**2 + len(groups) * mean
        return total / (PRIOR_GROUPS + len(groups))

    def _deviation(self, stratum: str, without: int | None = None) -> float:
        """Deviation of a new row of a stratum; `without` is the code of a group to leave out."""
        values = [s for g, s in self.squares.get(stratum, {}).items() if g != without]
        count = len(values)
        if count < 2 - (without is not None):
            return np.inf
        prior = STRATUM_GROUPS * self._pooled_square(without)
        square = (prior + sum(values)) / (STRATUM_GROUPS + count)
        quantile = float(student_quantile(STRATUM_GROUPS + count, 0.9))
        return float(SELECTION * quantile / HALF_WIDTH * np.sqrt(square * (1.0 + 1.0 / count)))


MOST_LEFT_OUT = 250
"""Maximum rows, drawn at random, for leave-one-group-out errors; the process is fitted to all."""
STANDARD_ERRORS = 0.5
"""Standard errors of the paired difference by which the process must beat the offsets, chosen on
whole networks (RTX 3090 and RTX 4090 held out; support sets of 5, 10 and 20 models)."""
OPERATOR_STANDARD_ERRORS = 2.0
"""Standard errors by which the offsets must beat the process for operator families, whose errors
depend on sizes: with 5 rows, the error on batched products is 21.4 % with the process and 24.4 %
with offsets (P4, P100, V100, T4 held out)."""
SHARES = (0.0, 0.5, 1.0)
"""Candidate weights of the process in a prediction."""
SAME_GROUP_SHARE = 0.5
"""Share of a model's residual that carries over to another execution mode. The regression slope is
0.89 (RTX 3090, nchw to nhwc) and 0.46 (RTX 4090, eager to compiled)."""
REPEAT_DEVIATION = 0.03
"""Standard deviation of repeated measurements in log units: runs of one network under several
versions of PyTorch differ by 0.025 (RTX 3090) and 0.029 (RTX 4090)."""
KNOWN_WEIGHT = 0.1
"""Factor on the prior weight of experts with a large `level` for devices in the training set."""
_FREE_LEVEL = 0.04


class _Fit(NamedTuple):
    """A fit to a support set.

    Attributes:
        offsets: offsets per stratum.
        process: mixture of Gaussian processes.
        share: weight of the process in predictions.
        rows: rows used for leave-one-group-out errors.
        left_out: (k,) their errors from fits without the row's group.
    """

    offsets: Offsets
    process: ErrorProcess
    share: float
    rows: SupportSet
    left_out: Column


@dataclass(frozen=True)
class DeviceError:
    """Log error of a predictor on one device, estimated from a support set.

    Attributes:
        sheet: spec sheet that identifies the device.
        rows: support set measured on it.
        known: whether it is in the training set, which lowers the error's prior variance.
    """

    sheet: Sheet
    rows: SupportSet
    known: bool = False

    @cached_property
    def _fit(self) -> _Fit:
        rows, factor = self.rows, KNOWN_FACTOR if self.known else 1.0
        level_weight = KNOWN_WEIGHT if self.known else 1.0
        experts = [
            e._replace(weight=e.weight * (level_weight if e.level >= _FREE_LEVEL else 1.0))
            for e in (NETWORK_EXPERTS if rows.comparable else OPERATOR_EXPERTS)
        ]
        sample = rows
        if len(rows) > MOST_LEFT_OUT:
            order = np.random.default_rng(0).permutation(len(rows))[:MOST_LEFT_OUT]
            sample = rows.take(np.sort(order))
        left = leave_groups_out(sample, experts, factor)
        choice = (0.0, STANDARD_ERRORS) if rows.comparable else (1.0, OPERATOR_STANDARD_ERRORS)
        share = process_share(left, sample.groups, *choice)
        offsets = Offsets.fit(rows.errors, rows.strata, rows.groups, factor)
        process = ErrorProcess.fit(rows, experts, left.weights, offsets)
        return _Fit(offsets, process, share, sample, left.blend(share))

    @cached_property
    def _deviations(self) -> GroupDeviations:
        return GroupDeviations.of(self._fit.left_out, self._fit.rows.strata, self._fit.rows.groups)

    @cached_property
    def _residuals(self) -> Column:
        """Residual of each row of the support set, (k,)."""
        return self.rows.errors - self._smooth(self.rows.strata, self.rows.features)

    @property
    def left_out_error(self) -> float:
        """Median of |log(measured / predicted)| over the rows of held-out groups."""
        return float(np.median(np.abs(self._fit.left_out)))

    def at(
        self, strata: Sequence[str], features: Matrix, groups: Sequence[str] | None = None
    ) -> tuple[Column, Column]:
        """Mean of the error at n points, and the standard deviation of a new row there, each (n,).

        The deviation times `HALF_WIDTH` is the half-width of an interval. It is infinite far from
        the support set, where the interval of an unseen device applies.

        Args:
            strata: n names of strata.
            features: (n, d) standardised features.
            groups: n names of groups; None if the support set has no names of groups.
        """
        names = np.array(strata, dtype=np.str_)
        distance, matched, same_group = self.rows.relation(names, features, groups)
        mean = self._smooth(names, features)
        deviation = self._deviations.deviation(names, self._nearest(names, distance))
        times = matched.sum(axis=1)
        repeated = matched @ self._residuals / np.maximum(times, 1)
        other_strata = same_group & ~matched
        related = other_strata @ self._residuals / np.maximum(other_strata.sum(axis=1), 1)
        repeats = REPEAT_DEVIATION**2 / np.maximum(times, 1)
        certain = self._deviations.pooled**2 / (self._deviations.pooled**2 + repeats)
        mean = mean + np.where(times > 0, certain * repeated, SAME_GROUP_SHARE * related)
        measured = np.sqrt(REPEAT_DEVIATION**2 + certain * repeats)
        return mean, np.where(times > 0, np.minimum(deviation, measured), deviation)

    def _smooth(self, strata: Names, features: Matrix) -> Column:
        """Mean of the error at n points without per-group corrections, (n,)."""
        fit = self._fit
        mean = (1.0 - fit.share) * fit.offsets.at(strata)
        if fit.share:
            mean = mean + fit.share * fit.process.at(strata, features)
        return mean

    @cached_property
    def _reach(self) -> dict[str, float]:
        """Stratum -> 90 % quantile of the distances of its rows to the nearest other group."""
        reach = {}
        for name in np.unique(self.rows.strata):
            rows = self.rows.take(np.flatnonzero(self.rows.strata == name))
            distance, _, _ = rows.relation(rows.strata, rows.features, rows.keys.tolist())
            other = rows.groups[:, None] != rows.groups[None, :]
            if other.any():
                nearest = np.where(other, distance, np.inf).min(axis=1)
                reach[str(name)] = float(np.quantile(nearest, 0.9, method="higher"))
        return reach

    def _nearest(self, strata: Names, distance: Matrix) -> Column:
        """Distance to the nearest support row of the stratum, in units of `_reach`, shape (n,)."""
        reach = np.array([self._reach.get(str(s), 0.0) for s in strata])
        nearest = distance.min(axis=1, initial=np.inf)
        no_reach = (reach == 0.0) & np.isfinite(nearest)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(no_reach, np.where(nearest > 0, np.inf, 0.0), nearest / reach)


def process_share(
    left: LeftOut, groups: Positions, default: float = 0.0, errors: float = STANDARD_ERRORS
) -> float:
    """The weight of the process with the lowest leave-one-group-out error, or the default.

    The comparison is paired: one difference of mean absolute errors per group. Their mean must be
    below zero by a number of standard errors.

    Args:
        left: leave-one-group-out errors.
        groups: (k,) group codes.
        default: weight to keep unless another is clearly better.
        errors: required improvement in standard errors.
    """
    codes = np.unique(groups)
    if len(codes) < 2:
        return default
    best, lowest = default, 0.0
    baseline = np.abs(left.blend(default))
    for share in SHARES:
        difference = np.abs(left.blend(share)) - baseline
        by_group = np.array([difference[groups == code].mean() for code in codes])
        noise = float(by_group.std(ddof=1)) / np.sqrt(len(codes))
        if by_group.mean() < min(-errors * noise, lowest):
            best, lowest = share, float(by_group.mean())
    return best


ENOUGH_ROWS = 10
"""Number of rows from which a device counts as seen after adaptation."""
MOST_ROWS = 1000
"""Maximum support set per device; the latest rows are kept."""
FARTHEST = 3.0
"""Standard deviations at which features are clipped to limit extrapolation of linear trends."""
TOO_WIDE = 0.25
"""Median leave-one-group-out error from which a limit flags the device as unpredictable."""


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
        """Means and standard deviations of training rows, shape (n, d)."""
        spread = matrix.std(axis=0)
        return cls(matrix.mean(axis=0), np.where(spread > 1e-9, spread, np.inf))

    def apply(self, matrix: Matrix, width: int) -> Matrix:
        """Standardised and clipped rows, padded with zeros to shape (n, width).

        Columns are scaled so that distances do not depend on the number of varying columns.

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
    """Errors of a predictor on all devices with support sets.

    Attributes:
        devices: error per device.
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
        """A copy in which the devices of these rows have new errors.

        Args:
            errors: n values of log(measured / uncorrected prediction); NaN is ignored.
            devices: n devices.
            strata: n names of strata.
            features: (n, d) features scaled by `Standardizer`.
            known: devices in the training set.
            groups: n group names, such as graph digests, which are held out as a whole. If None,
                rows of one stratum with equal features form a group.
            comparable: whether features mean the same in all strata: true for networks across
                execution modes, false for operator families.
            together: whether every one of these devices gets the rows of all of them.
        """
        updated = []
        for key, of_device in rows_by(map(sheet, devices)).items():
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
            updated.append(DeviceError(key, rows, devices[of_device[0]] in known))
        kept = [d for d in self.devices if not any(same_sheet(d.sheet, u.sheet) for u in updated)]
        return SupportGP((*kept, *updated))

    def of(self, device: Device) -> DeviceError | None:
        """The error on this device; None without a support set."""
        if not self.devices or not device.has_sheet:
            return None
        key = sheet(device)
        return next((d for d in self.devices if same_sheet(d.sheet, key)), None)

    def rows(self, device: Device) -> int:
        """Number of rows in a device's support set; 0 if it has none."""
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

        Zero and NaN for devices without a support set. The deviation is infinite far from the
        support set.

        Args:
            devices: n devices.
            strata: n names of strata.
            features: (n, d) features scaled by `Standardizer`.
            groups: n group names, as in `updated`; if None, measured groups are not recognised by
                name.
        """
        mean, deviation = np.zeros(len(devices)), np.full(len(devices), np.nan)
        if not self.devices:
            return mean, deviation
        for device in set(devices):
            known = self.of(device)
            if known is not None:
                rows = np.array([d == device for d in devices])
                positions = np.flatnonzero(rows)
                names = None if groups is None else [groups[i] for i in positions.tolist()]
                own_strata = [strata[i] for i in positions.tolist()]
                mean[rows], deviation[rows] = known.at(own_strata, features[rows], names)
        return mean, deviation

    def intervals(
        self, values: Column, deviation: Column, low: Column, high: Column
    ) -> tuple[Column, Column]:
        """Bounds around corrected values, never wider than for an unseen device.

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

    def limits(self, device: Device) -> tuple[Limit, ...]:
        """A limit where leave-one-group-out errors on a device are large, else empty."""
        known = self.of(device)
        if known is None or len(known.rows) < 5 or known.left_out_error < TOO_WIDE:
            return ()
        message = (
            f"{len(known.rows)} measurements are too few to predict this device: the "
            f"leave-one-out error is {100 * np.expm1(known.left_out_error):.0f} %"
        )
        return (Limit(message, LATENCY),)


def graph_digests(queries: Sequence[Query]) -> list[str]:
    """Group names of network queries: the graph digest; empty for other workloads."""
    return [q.workload.graph.digest if isinstance(q.workload, Network) else "" for q in queries]
