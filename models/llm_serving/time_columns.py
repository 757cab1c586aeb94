"""Times and rates of deployments as columns, before those that are answered become predictions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import Self

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

    def __len__(self) -> int:
        return len(self.limits)

    def prediction(self, row: int) -> Prediction:
        """The prediction of one deployment."""
        estimates = {}
        for name, own in self.estimates.items():
            value, low, high = own[row].tolist()
            coverage = float(self.coverage[name][row])
            if isnan(low):
                estimates[name] = Estimate(value)
            else:
                estimates[name] = Estimate(value, low, high, None if isnan(coverage) else coverage)
        estimates = {name: own for name, own in estimates.items() if not isnan(own.value)}
        limits = self.limits[row]
        return Prediction(estimates, all(limit.in_domain for limit in limits), limits)

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
