"""The error on one device: an offset per stratum, a process where that is better, and intervals.

The offsets are the baseline. The process over the features replaces them, or half of them, only
where its errors on groups left out are lower by more than the noise of the paired comparison. What
was measured itself is reproduced within its noise. Intervals come from the errors on left-out
groups, with a Student quantile for their number, and narrow only near what was measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.models.adaptation.error_process import (
    NETWORK_EXPERTS,
    OPERATOR_EXPERTS,
    ErrorProcess,
    LeftOut,
    leave_groups_out,
)
from forerun.models.adaptation.held_out_errors import GroupSpread, HeldOutErrors
from forerun.models.adaptation.offsets import KNOWN_FACTOR, Offsets
from forerun.models.adaptation.support_set import SupportSet
from forerun.models.domain.feature_range import Sheet

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
Names = NDArray[np.str_]

MOST_LEFT_OUT = 250
"""Rows of which groups are left out; the process then takes all rows."""
STANDARD_ERRORS = 0.5
"""By how many standard errors of the paired difference the process must beat the offsets; chosen on
whole networks (RTX 3090 and RTX 4090 left out; 5, 10 and 20 models)."""
OPERATOR_STANDARD_ERRORS = 2.0
"""By how many the offsets must beat the process for operator families, whose errors follow their
sizes: with 5 rows the process has 21.4 % on batched products where offsets have 24.4 (P4, P100,
V100, T4 left out)."""
SHARES = (0.0, 0.5, 1.0)
"""Shares of the process in an answer that are compared."""
SAME_GROUP_SHARE = 0.5
"""Share of a model's own residual that it has in another execution mode: the regression slope is
0.89 (RTX 3090, nchw to nhwc) and 0.46 (RTX 4090, eager to compiled)."""
REPEAT_DEVIATION = 0.03
"""Standard deviation of repeats in log units: runs of one network under several versions of PyTorch
differ by 0.025 (RTX 3090) and 0.029 (RTX 4090)."""
KNOWN_WEIGHT = 0.1
"""Factor on the weight of experts with a level, for a device in the training set."""
_FREE_LEVEL = 0.04


class _Fit(NamedTuple):
    """The offsets, the process, the share of the process in answers, errors left out."""

    offsets: Offsets
    process: ErrorProcess
    share: float
    rows: SupportSet
    left_out: Column


@dataclass(frozen=True)
class DeviceError:
    """The error on one device.

    Attributes:
        sheet: which device, by its spec sheet.
        rows: what was measured on it.
        known: whether it is in the training set, so that an error is less to be expected.
    """

    sheet: Sheet
    rows: SupportSet
    known: bool = False

    @cached_property
    def _fit(self) -> _Fit:
        rows, factor = self.rows, KNOWN_FACTOR if self.known else 1.0
        doubt = KNOWN_WEIGHT if self.known else 1.0
        experts = [
            e._replace(weight=e.weight * (doubt if e.level >= _FREE_LEVEL else 1.0))
            for e in (NETWORK_EXPERTS if rows.comparable else OPERATOR_EXPERTS)
        ]
        some = rows
        if len(rows) > MOST_LEFT_OUT:
            order = np.random.default_rng(0).permutation(len(rows))[:MOST_LEFT_OUT]
            some = rows.take(np.sort(order))
        left = leave_groups_out(some, experts, factor)
        choice = (0.0, STANDARD_ERRORS) if rows.comparable else (1.0, OPERATOR_STANDARD_ERRORS)
        share = process_share(left, some.groups, *choice)
        offsets = Offsets.fit(rows.errors, rows.strata, rows.groups, factor)
        process = ErrorProcess.fit(rows, experts, left.weights, offsets)
        return _Fit(offsets, process, share, some, left.blend(share))

    @cached_property
    def _spread(self) -> GroupSpread:
        return GroupSpread.of(self._fit.left_out, self._fit.rows.strata, self._fit.rows.groups)

    @cached_property
    def _residuals(self) -> Column:
        """What the answers leave of each measured row, (k,)."""
        return self.rows.errors - self._smooth(self.rows.strata, self.rows.features)

    @property
    def process_share(self) -> float:
        """Share of the process in the answers: 0 where offsets alone answer."""
        return self._fit.share

    @property
    def left_out_error(self) -> float:
        """Median of |log(measured / predicted)| of rows whose group is left out."""
        return float(np.median(np.abs(self._fit.left_out)))

    def held_out(self) -> HeldOutErrors:
        """Errors, and coverage of the intervals, on groups left out one by one."""
        fit = self._fit
        return self._spread.held_out(fit.left_out, fit.rows)

    def at(
        self, strata: Sequence[str], features: Matrix, groups: Sequence[str] | None = None
    ) -> tuple[Column, Column]:
        """Mean of the error at n points, and a standard deviation for a new row.

        The deviation times 1.645 is half of a 90 % interval; it is infinite where nothing measured
        resembles the point, so that the interval of an unseen device stays.

        Args:
            strata: n names.
            features: (n, d) standardised.
            groups: n names of what is asked; None where the rows were given without.
        """
        names = np.array(strata, dtype=np.str_)
        distance, matched, same_group = self.rows.relation(names, features, groups)
        mean = self._smooth(names, features)
        deviation = self._spread.deviation(names, self._nearest(names, distance))
        times = matched.sum(axis=1)
        own = matched @ self._residuals / np.maximum(times, 1)
        kin = same_group & ~matched
        related = kin @ self._residuals / np.maximum(kin.sum(axis=1), 1)
        repeats = REPEAT_DEVIATION**2 / np.maximum(times, 1)
        certain = self._spread.pooled**2 / (self._spread.pooled**2 + repeats)
        mean = mean + np.where(times > 0, certain * own, SAME_GROUP_SHARE * related)
        measured = np.sqrt(REPEAT_DEVIATION**2 + certain * repeats)
        return mean, np.where(times > 0, np.minimum(deviation, measured), deviation)

    def _smooth(self, strata: Names, features: Matrix) -> Column:
        fit = self._fit
        mean = (1.0 - fit.share) * fit.offsets.at(strata)
        if fit.share:
            mean = mean + fit.share * fit.process.at(strata, features)
        return mean

    @cached_property
    def _reach(self) -> dict[str, float]:
        """Stratum -> how far its groups lie from the nearest other, 9 of 10 of them."""
        found = {}
        for name in np.unique(self.rows.strata):
            rows = self.rows.take(np.flatnonzero(self.rows.strata == name))
            distance, _, _ = rows.relation(rows.strata, rows.features, rows.keys.tolist())
            other = rows.groups[:, None] != rows.groups[None, :]
            if other.any():
                nearest = np.where(other, distance, np.inf).min(axis=1)
                found[str(name)] = float(np.quantile(nearest, 0.9, method="higher"))
        return found

    def _nearest(self, strata: Names, distance: Matrix) -> Column:
        """Distance to the nearest measured row of the stratum, in units of that reach; (n,)."""
        reach = np.array([self._reach.get(str(s), 0.0) for s in strata])
        nearest = distance.min(axis=1, initial=np.inf)
        none = (reach == 0.0) & np.isfinite(nearest)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(none, np.where(nearest > 0, np.inf, 0.0), nearest / reach)


def process_share(
    left: LeftOut, groups: NDArray[np.intp], default: float = 0.0, errors: float = STANDARD_ERRORS
) -> float:
    """Share of the process with the lowest left-out error, of those that beat the default.

    The comparison is paired: one difference of mean absolute errors a group. Its mean must lie
    below zero by some standard errors.

    Args:
        left: errors left out.
        groups: (k,) codes.
        default: the share that is kept until another beats it.
        errors: by how many standard errors it must be beaten.
    """
    codes = np.unique(groups)
    if len(codes) < 2:
        return default
    best, lowest = default, 0.0
    usual = np.abs(left.blend(default))
    for share in SHARES:
        gain = np.abs(left.blend(share)) - usual
        by_group = np.array([gain[groups == code].mean() for code in codes])
        noise = float(by_group.std(ddof=1)) / np.sqrt(len(codes))
        if by_group.mean() < min(-errors * noise, lowest):
            best, lowest = share, float(by_group.mean())
    return best
