"""Times and rates of deployments as columns, before those that are answered become predictions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan
from typing import Final, Self

import numpy as np

from forerun.data.columns import Column, Columns, Matrix
from forerun.models.limit import Limit
from forerun.models.prediction import Estimate, Prediction, Predictions


@dataclass(frozen=True, slots=True)
class TimeColumns(Columns):
    """Times and rates of n deployments, whose intervals are kept however wide they are.

    Attributes:
        estimates: metric -> best estimates and the low and high ends of their intervals, (n, 3);
            NaN where there is none.
        coverage: metric -> (n,) nominal coverages of the intervals; NaN where there is none.
        limits: n tuples of limits.
    """

    estimates: Mapping[str, Matrix]
    coverage: Mapping[str, Column]
    limits: Sequence[tuple[Limit, ...]]

    @classmethod
    def of(cls, found: Predictions, metrics: Iterable[str]) -> Self:
        """The columns of some metrics of predictions."""
        nothing, estimates, coverage = np.full(len(found), np.nan), {}, {}
        for name in metrics:
            ends = (found.low.get(name, nothing), found.high.get(name, nothing))
            estimates[name] = np.stack([found.values[name], *ends], axis=1)
            own = np.full(len(found), found.coverage_of(name), dtype=np.float64)
            stated = found.row_coverage.get(name, own)
            coverage[name] = np.where(np.isnan(stated), own, stated)
        return cls(estimates, coverage, found.limits or [()] * len(found))

    @classmethod
    def of_predictions(cls, found: Sequence[Prediction]) -> Self:
        """The columns of n predictions."""
        estimates, coverage = {}, {}
        for name in dict.fromkeys(name for one in found for name in one.estimates):
            every = [one.estimates.get(name, _NOTHING) for one in found]
            rows = [(own.value, own.low, own.high, own.coverage) for own in every]
            columns = np.array(rows, dtype=np.float64)
            estimates[name], coverage[name] = columns[:, :3], columns[:, 3]
        return cls(estimates, coverage, [one.limits for one in found])

    @classmethod
    def of_rows(cls, rows: Sequence[tuple[Self, int]]) -> Self:
        """One row of each of n tables, which have the same metrics."""
        names = rows[0][0].estimates if rows else ()
        return cls(
            {name: np.array([table.estimates[name][row] for table, row in rows]) for name in names},
            {name: np.array([table.coverage[name][row] for table, row in rows]) for name in names},
            [table.limits[row] for table, row in rows],
        )

    def __len__(self) -> int:
        return len(self.limits)

    def prediction(self, row: int) -> Prediction:
        """The prediction of one deployment."""
        (found,) = self.take(slice(row, row + 1)).predictions()
        return found

    def predictions(self) -> list[Prediction]:
        """The prediction of each deployment."""
        columns = {
            name: np.column_stack([own, self.coverage[name]]).tolist()
            for name, own in self.estimates.items()
        }
        return [
            Prediction(
                {
                    name: _estimate(*own[row])
                    for name, own in columns.items()
                    if not isnan(own[row][0])
                },
                all(limit.in_domain for limit in limits),
                limits,
            )
            for row, limits in enumerate(self.limits)
        ]

    def scaled(self, factors: Mapping[str, Column]) -> Self:
        """The same, metrics and their intervals times factors of shape (n,)."""
        changed = {name: self.estimates[name] * own[:, None] for name, own in factors.items()}
        return replace(self, estimates={**self.estimates, **changed})

    def followed_by(self, other: Self) -> Self:
        """These deployments, and after them others with the same metrics."""
        estimates, coverage = (
            {name: np.concatenate([column, theirs[name]]) for name, column in own.items()}
            for own, theirs in (
                (self.estimates, other.estimates),
                (self.coverage, other.coverage),
            )
        )
        return replace(
            self, estimates=estimates, coverage=coverage, limits=[*self.limits, *other.limits]
        )


_NOTHING: Final = Estimate(nan)


def _estimate(value: float, low: float, high: float, coverage: float) -> Estimate:
    """An estimate from numbers that are NaN where there is none."""
    if isnan(low):
        return Estimate(value)
    return Estimate(value, low, high, None if isnan(coverage) else coverage)
