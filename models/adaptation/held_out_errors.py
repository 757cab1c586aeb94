"""How far answers on left-out groups are off, and intervals from that for few groups."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from forerun.models.adaptation.support_set import SupportSet

Column = NDArray[np.float64]
Names = NDArray[np.str_]

NORMAL_95 = 1.645
PRIOR_SPREAD, PRIOR_GROUPS = 0.1, 3.0
"""Spread of the errors before any group is left out, in log units, worth so many groups: what the
offsets leave of networks on RTX 3090 and RTX 4090 is 0.09 to 0.15."""
STRATUM_GROUPS = 4.0
"""Groups' worth of belief that a stratum scatters as all of them do."""
CLIP = 6.0
"""Median absolute deviations at which squared errors are clipped."""
SELECTION = 1.12
"""Factor on deviations, as the weights of the experts and their share were chosen by the same
errors; with it 9 of 10 rows of families not measured are covered on RTX 3090 and RTX 4090."""
MOST_WIDENED = 20.0
"""Factor on a deviation, away from the support set, from which on it is infinite: the interval of
an unseen device is narrower anyway, and exp of the product must not overflow."""
_MAD_TO_DEVIATION = 1.4826


@dataclass(frozen=True, slots=True)
class HeldOutErrors:
    """Errors on k rows, each by an answer that saw no row of its group.

    Attributes:
        errors: (k,) log(measured / predicted).
        strata: (k,) names.
        groups: (k,) codes of the groups.
        keys: (k,) their names; empty where none were given.
        inside: (k,) whether the row lies in the interval from the other groups.
    """

    errors: Column
    strata: Names
    groups: NDArray[np.intp]
    keys: Names
    inside: NDArray[np.bool_]

    @property
    def coverage(self) -> float:
        """Share of rows inside their 90 % interval, each group counting once."""
        return float(np.mean(list(self._by_group(self.inside.astype(np.float64)).values())))

    @property
    def mape(self) -> float:
        """Mean absolute percentage error, each group counting once."""
        wrong = 100.0 * np.abs(np.expm1(-self.errors))
        return float(np.mean(list(self._by_group(wrong).values())))

    @property
    def count(self) -> int:
        """How many groups were left out."""
        return len(np.unique(self.groups))

    def _by_group(self, values: Column) -> Mapping[int, float]:
        return {int(g): float(values[self.groups == g].mean()) for g in np.unique(self.groups)}


@dataclass(frozen=True)
class GroupSpread:
    """Spread of left-out errors: of each stratum, shrunk to that of all.

    Attributes:
        squares: stratum -> mean squared error of each of its groups, by the group's code.
    """

    squares: Mapping[str, Mapping[int, float]]

    @classmethod
    def of(cls, errors: Column, strata: Names, groups: NDArray[np.intp]) -> Self:
        """From k left-out errors."""
        squared = errors**2
        found: dict[str, dict[int, float]] = {}
        for name in np.unique(strata):
            mine = strata == name
            limit = CLIP * _MAD_TO_DEVIATION * float(np.median(np.abs(errors[mine])))
            clipped = np.minimum(squared, max(limit, PRIOR_SPREAD) ** 2)
            found[str(name)] = {
                int(g): float(clipped[mine & (groups == g)].mean()) for g in np.unique(groups[mine])
            }
        return cls(found)

    @property
    def pooled(self) -> float:
        """Standard deviation over all strata."""
        return float(np.sqrt(self._pooled_square(None)))

    def deviation(self, strata: Names, nearest: Column) -> Column:
        """Standard deviation whose 1.645-fold is half of a 90 % interval, (n,).

        Infinite in a stratum with fewer than two groups, and from twice the reach of the support
        set on; between one and two reaches it grows.

        Args:
            strata: n names.
            nearest: (n,) distance to the support set over its own reach.
        """
        of_stratum = {str(name): self._deviation(str(name)) for name in np.unique(strata)}
        own = np.array([of_stratum[str(name)] for name in strata], dtype=np.float64)
        left = np.clip(2.0 - nearest, 0.0, 1.0)
        near = left * MOST_WIDENED > 1.0
        return np.where(near, own / np.where(near, left, 1.0), np.inf)

    def held_out(self, errors: Column, rows: SupportSet) -> HeldOutErrors:
        """The errors, and whether intervals from the other groups hold them."""
        reach = np.array(
            [
                NORMAL_95 * self._deviation(str(name), int(group))
                for name, group in zip(rows.strata, rows.groups, strict=True)
            ]
        )
        inside = np.abs(errors) <= reach
        return HeldOutErrors(errors, rows.strata, rows.groups, rows.keys, inside)

    def _pooled_square(self, without: int | None) -> float:
        values = [s for by in self.squares.values() for g, s in by.items() if g != without]
        groups = {g for by in self.squares.values() for g in by if g != without}
        mean = float(np.mean(values)) if values else 0.0
        total = PRIOR_GROUPS * PRIOR_SPREAD**2 + len(groups) * mean
        return total / (PRIOR_GROUPS + len(groups))

    def _deviation(self, stratum: str, without: int | None = None) -> float:
        from scipy.special import stdtrit

        values = [s for g, s in self.squares.get(stratum, {}).items() if g != without]
        count = len(values)
        if count < 2 - (without is not None):
            return np.inf
        prior = STRATUM_GROUPS * self._pooled_square(without)
        square = (prior + sum(values)) / (STRATUM_GROUPS + count)
        quantile = float(stdtrit(STRATUM_GROUPS + count, 0.95))
        return float(SELECTION * quantile / NORMAL_95 * np.sqrt(square * (1.0 + 1.0 / count)))
