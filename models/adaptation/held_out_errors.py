"""Leave-one-group-out errors of an adapted predictor, and prediction intervals from few groups."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from forerun.data.columns import Column, Mask, Names, Positions
from forerun.data.level import HALF_WIDTH
from forerun.models.adaptation.support_set import SupportSet
from forerun.models.conformal import group_weights, student_quantile

PRIOR_DEVIATION, PRIOR_GROUPS = 0.1, 3.0
"""Prior standard deviation of the errors in log units, and its weight in groups: residuals of
networks from the offsets on RTX 3090 and RTX 4090 have deviations of 0.09 to 0.15."""
STRATUM_GROUPS = 4.0
"""Pseudo-observations, in groups, that shrink a stratum's variance to the pooled one."""
CLIP = 6.0
"""Median absolute errors, scaled to a standard deviation, at which errors are clipped."""
SELECTION = 1.12
"""Factor on deviations, because the weights of the experts and of the process were selected on the
same errors. With it, 9 of 10 rows of unmeasured families are covered on RTX 3090 and RTX 4090."""
MOST_WIDENED = 20.0
"""Largest factor on a deviation away from the support set; beyond it the deviation is infinite. The
interval of an unseen device is narrower anyway, and the exponential must not overflow."""
_MAD_TO_DEVIATION = 1.4826


@dataclass(frozen=True, slots=True)
class HeldOutErrors:
    """Errors on k rows, each of a fit without the row's group.

    Attributes:
        errors: (k,) log(measured / predicted).
        strata: (k,) names of strata.
        groups: (k,) codes of groups.
        keys: (k,) names of groups; empty strings if none were given.
        inside: (k,) whether the interval calibrated on the other groups covers the row.
    """

    errors: Column
    strata: Names
    groups: Positions
    keys: Names
    inside: Mask

    @property
    def coverage(self) -> float:
        """Share of rows inside their 90 % interval, with equal weight for every group."""
        return float(np.average(self.inside, weights=group_weights(self.groups)))

    @property
    def mape(self) -> float:
        """Mean absolute percentage error in percent, with equal weight for every group."""
        percent = 100.0 * np.abs(np.expm1(-self.errors))
        return float(np.average(percent, weights=group_weights(self.groups)))

    @property
    def count(self) -> int:
        """Number of groups, each of which was held out once."""
        return len(np.unique(self.groups))


@dataclass(frozen=True)
class GroupDeviations:
    """Standard deviations of leave-one-group-out errors by stratum, shrunk to the pooled one.

    Attributes:
        squares: stratum -> code of a group -> mean squared error.
    """

    squares: Mapping[str, Mapping[int, float]]

    @classmethod
    def of(cls, errors: Column, strata: Names, groups: Positions) -> Self:
        """The deviations of k leave-one-group-out errors.

        Args:
            errors: (k,) log(measured / predicted).
            strata: (k,) names of strata.
            groups: (k,) codes of groups.
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
        """Standard deviation that times `HALF_WIDTH` is the half-width of an interval, shape (n,).

        It is infinite in a stratum with fewer than two groups. From one to two times the reach of
        the support set it grows, and beyond it is infinite.

        Args:
            strata: n names of strata.
            nearest: (n,) distance to the support set in units of the reach of the support set.
        """
        by_stratum = {str(name): self._deviation(str(name)) for name in np.unique(strata)}
        own = np.array([by_stratum[str(name)] for name in strata], dtype=np.float64)
        closeness = np.clip(2.0 - nearest, 0.0, 1.0)
        near = closeness * MOST_WIDENED > 1.0
        return np.where(near, own / np.where(near, closeness, 1.0), np.inf)

    def held_out(self, errors: Column, rows: SupportSet) -> HeldOutErrors:
        """The errors, and whether intervals calibrated on the other groups cover them.

        Args:
            errors: (k,) leave-one-group-out errors.
            rows: support set of k rows that they belong to.
        """
        half_width = np.array(
            [
                HALF_WIDTH * self._deviation(str(name), int(group))
                for name, group in zip(rows.strata, rows.groups, strict=True)
            ]
        )
        inside = np.abs(errors) <= half_width
        return HeldOutErrors(errors, rows.strata, rows.groups, rows.keys, inside)

    def _pooled_square(self, without: int | None) -> float:
        """Pooled variance with its prior; `without` leaves out the group of that code."""
        values = [s for by in self.squares.values() for g, s in by.items() if g != without]
        groups = {g for by in self.squares.values() for g in by if g != without}
        mean = float(np.mean(values)) if values else 0.0
        total = PRIOR_GROUPS * PRIOR_DEVIATION**2 + len(groups) * mean
        return total / (PRIOR_GROUPS + len(groups))

    def _deviation(self, stratum: str, without: int | None = None) -> float:
        """Deviation of a new row of a stratum; `without` leaves out the group of that code."""
        values = [s for g, s in self.squares.get(stratum, {}).items() if g != without]
        count = len(values)
        if count < 2 - (without is not None):
            return np.inf
        prior = STRATUM_GROUPS * self._pooled_square(without)
        square = (prior + sum(values)) / (STRATUM_GROUPS + count)
        quantile = float(student_quantile(STRATUM_GROUPS + count, 0.9))
        return float(SELECTION * quantile / HALF_WIDTH * np.sqrt(square * (1.0 + 1.0 / count)))
