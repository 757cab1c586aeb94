"""Predictions with intervals and limits: columns over n queries, and the row of one query."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.metrics import SHARES
from forerun.models.limit import Limit

Column = NDArray[np.float64]
WIDEST_RATIO: Final = 10.0
"""Largest ratio of the ends of a calibrated interval for which an estimate is returned. A wider
interval does not even determine the order of magnitude, so the estimate is withheld, with a reason.
Chosen, not fitted. In the stored evaluations it concerns mostly designs of programs without any
measured design, and results in MLPerf Inference without earlier rounds."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Best estimate of one metric and its prediction interval: `low` <= `value` <= `high`.

    Attributes:
        value: best estimate, in the unit of the metric.
        low, high: ends of the interval; None without one.
        coverage: nominal share of measured values inside the interval; None without an interval,
            or for one that was not calibrated.
    """

    value: float
    low: float | None = None
    high: float | None = None
    coverage: float | None = None


def too_wide(metric: str, estimate: Estimate) -> str | None:
    """Why an estimate is withheld; None if it is returned.

    Intervals without a nominal coverage are always returned, and so are metrics that are shares,
    whose intervals are judged by the difference of their ends and not by the ratio.
    """
    if estimate.coverage is None or estimate.low is None or estimate.high is None:
        return None
    if metric in SHARES or estimate.high <= WIDEST_RATIO * estimate.low:
        return None
    ratio = estimate.high / estimate.low if estimate.low > 0.0 else float("inf")
    return (
        f"not known well enough: the interval that holds {100 * estimate.coverage:.0f} % of such "
        f"cases spans a factor of {ratio:,.0f}, and beyond {WIDEST_RATIO:.0f} nothing is answered; "
        "a few measurements of it narrow that"
    )


@dataclass(frozen=True, slots=True)
class Prediction:
    """The prediction for one query.

    Attributes:
        estimates: metric name -> estimate; without those that are withheld.
        in_domain: whether the query is inside the domain of the training set.
        limits: what lies outside the domain and how far, and notes.
        breakdown_ms: operator class -> milliseconds; empty if the predictor gives none.
        breakdown_mib: weights, activations, context, ... -> MiB; empty if the predictor gives none.
        withheld: metric name -> reason why its estimate is withheld: its calibrated interval is
            wider than `WIDEST_RATIO`.
    """

    estimates: Mapping[str, Estimate]
    in_domain: bool = True
    limits: tuple[Limit, ...] = ()
    breakdown_ms: Mapping[str, float] = field(default_factory=dict)
    breakdown_mib: Mapping[str, float] = field(default_factory=dict)
    withheld: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Predictions:
    """Predictions for n queries, as columns.

    The columns contain every best estimate, however wide its interval: evaluations score them, and
    a ranking of queries may be right even where single values are uncertain. A row, which is a
    `Prediction`, is for decisions and omits estimates whose interval is too wide.

    Attributes:
        values: metric name -> (n,) values; NaN where there is no prediction.
        low, high: metric name -> (n,) ends of the intervals, for metrics with intervals.
        coverage: nominal coverage of the intervals, for all metrics or by metric; None for
            intervals without a nominal coverage.
        limits: n tuples, empty for queries inside the domain.
        breakdowns_ms: n mappings operator class -> milliseconds, or empty.
        breakdowns_mib: n mappings component of memory -> MiB, or empty.
        row_coverage: metric name -> (n,) coverages that replace `coverage`, estimated on held-out
            rows of the device; NaN where `coverage` applies.
    """

    values: Mapping[str, Column]
    low: Mapping[str, Column] = field(default_factory=dict)
    high: Mapping[str, Column] = field(default_factory=dict)
    coverage: float | Mapping[str, float | None] | None = None
    limits: Sequence[tuple[Limit, ...]] = ()
    breakdowns_ms: Sequence[Mapping[str, float]] = ()
    breakdowns_mib: Sequence[Mapping[str, float]] = ()
    row_coverage: Mapping[str, Column] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.values.values())))

    def coverage_of(self, metric: str) -> float | None:
        """Nominal coverage of one metric's intervals; None if they have none."""
        if self.coverage is None or isinstance(self.coverage, float):
            return self.coverage
        return self.coverage.get(metric)

    def __getitem__(self, row: int) -> Prediction:
        estimates = {
            name: self._estimate(name, float(column[row]), row)
            for name, column in self.values.items()
            if not np.isnan(column[row])
        }
        withheld = {name: why for name, own in estimates.items() if (why := too_wide(name, own))}
        if {"power_w", "latency_ms"} & set(withheld) and "energy_j" in estimates:
            withheld.setdefault("energy_j", "power or time, which it follows from, is withheld")
        limits = self.limits[row] if self.limits else ()
        return Prediction(
            estimates={name: own for name, own in estimates.items() if name not in withheld},
            in_domain=all(limit.in_domain for limit in limits),
            limits=limits,
            breakdown_ms=self.breakdowns_ms[row] if self.breakdowns_ms else {},
            breakdown_mib=self.breakdowns_mib[row] if self.breakdowns_mib else {},
            withheld=withheld,
        )

    def _estimate(self, metric: str, value: float, row: int) -> Estimate:
        if metric not in self.low or np.isnan(self.low[metric][row]):
            return Estimate(value)
        low, high = float(self.low[metric][row]), float(self.high[metric][row])
        own = self.row_coverage.get(metric)
        if own is not None and not np.isnan(own[row]):
            return Estimate(value, low, high, float(own[row]))
        return Estimate(value, low, high, self.coverage_of(metric))
