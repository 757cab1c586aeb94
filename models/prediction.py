"""Answers with intervals, as columns; one row is a `Prediction`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """One metric's answer: `low` <= `value` <= `high`, and how often the truth lies between.

    `low`, `high` and `coverage` are None when the predictor gives no interval.
    """

    value: float
    low: float | None = None
    high: float | None = None
    coverage: float | None = None


@dataclass(frozen=True, slots=True)
class Prediction:
    """The answer to one query.

    Attributes:
        estimates: metric name -> estimate.
        in_domain: False when an input lies outside what training saw.
        limits: one line per input that does, saying which and how far.
        breakdown_ms: operator class -> milliseconds; empty when the predictor gives none.
        breakdown_mib: weights, activations, context, ... -> MiB; likewise.
    """

    estimates: Mapping[str, Estimate]
    in_domain: bool = True
    limits: tuple[str, ...] = ()
    breakdown_ms: Mapping[str, float] = field(default_factory=dict)
    breakdown_mib: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Predictions:
    """Answers to n queries.

    Attributes:
        values: metric name -> n values; NaN where the predictor gives no answer.
        low, high: metric name -> n bounds, for metrics with intervals.
        coverage: share of truths that the intervals are meant to hold, one for all metrics or
            one each; None where an interval makes no such claim.
        limits: n tuples of lines, empty where the query is inside the training range.
        breakdowns_ms: n mappings operator class -> milliseconds, or empty.
        breakdowns_mib: n mappings of what takes memory -> MiB, or empty.
        row_coverage: metric name -> n shares in place of `coverage`, where a device's own held-out
            rows tell it; NaN where they do not.
    """

    values: Mapping[str, Column]
    low: Mapping[str, Column] = field(default_factory=dict)
    high: Mapping[str, Column] = field(default_factory=dict)
    coverage: float | Mapping[str, float | None] | None = None
    limits: Sequence[tuple[str, ...]] = ()
    breakdowns_ms: Sequence[Mapping[str, float]] = ()
    breakdowns_mib: Sequence[Mapping[str, float]] = ()
    row_coverage: Mapping[str, Column] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.values.values())))

    def coverage_of(self, metric: str) -> float | None:
        """Share of truths that one metric's interval is meant to hold."""
        if self.coverage is None or isinstance(self.coverage, float):
            return self.coverage
        return self.coverage.get(metric)

    def __getitem__(self, row: int) -> Prediction:
        estimates = {
            name: self._estimate(name, float(column[row]), row)
            for name, column in self.values.items()
            if not np.isnan(column[row])
        }
        limits = self.limits[row] if self.limits else ()
        return Prediction(
            estimates=estimates,
            in_domain=not limits,
            limits=limits,
            breakdown_ms=self.breakdowns_ms[row] if self.breakdowns_ms else {},
            breakdown_mib=self.breakdowns_mib[row] if self.breakdowns_mib else {},
        )

    def _estimate(self, metric: str, value: float, row: int) -> Estimate:
        if metric not in self.low or np.isnan(self.low[metric][row]):
            return Estimate(value)
        low, high = float(self.low[metric][row]), float(self.high[metric][row])
        own = self.row_coverage.get(metric)
        if own is not None and not np.isnan(own[row]):
            return Estimate(value, low, high, float(own[row]))
        return Estimate(value, low, high, self.coverage_of(metric))
