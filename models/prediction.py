"""Answers with intervals, as columns; one row is a `Prediction`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.metrics import SHARES

Column = NDArray[np.float64]
WIDEST_RATIO: Final = 10.0
"""Largest upper over lower end of a calibrated interval that is answered: one order of magnitude.
Beyond it an answer tells not even the order of magnitude, so it is withheld, with a reason. Chosen,
not fitted. Of the stored evaluations it concerns mostly designs of programs without a measured
design, and results in MLPerf Inference without a history."""


NO_EFFECT: Final = "without effect on this network"
"""What a line among limits says that only informs: an option that was given changes nothing."""


def is_note(line: str) -> bool:
    """Whether a line among limits only informs, and speaks against no answer."""
    return NO_EFFECT in line


@dataclass(frozen=True, slots=True)
class Estimate:
    """One metric's answer: `low` <= `value` <= `high`, and how often the truth lies between.

    `low`, `high` and `coverage` are None when the predictor gives no interval.
    """

    value: float
    low: float | None = None
    high: float | None = None
    coverage: float | None = None


def too_wide(metric: str, estimate: Estimate) -> str | None:
    """Why an estimate decides nothing; None where it may be answered.

    Ranges that claim no coverage are answered as the ranges that they say they are, and shares are
    judged by how far their ends lie apart.
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
    """The answer to one query.

    Attributes:
        estimates: metric name -> estimate; without those that are withheld.
        in_domain: False when an input lies outside what training saw.
        limits: one line per input that does, saying which and how far, and notes (`is_note`).
        breakdown_ms: operator class -> milliseconds; empty when the predictor gives none.
        breakdown_mib: weights, activations, context, ... -> MiB; likewise.
        withheld: metric name -> why it is not answered although there is a best estimate: its
            calibrated interval is wider than `WIDEST_RATIO`.
    """

    estimates: Mapping[str, Estimate]
    in_domain: bool = True
    limits: tuple[str, ...] = ()
    breakdown_ms: Mapping[str, float] = field(default_factory=dict)
    breakdown_mib: Mapping[str, float] = field(default_factory=dict)
    withheld: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Predictions:
    """Answers to n queries.

    Columns hold every best estimate, however wide its interval: evaluation scores them, and an
    order among queries of one kind may be right where no single value is. One row, a `Prediction`,
    is what leaves for somebody who decides by it, without estimates that are too wide for that.

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
        withheld = {name: why for name, one in estimates.items() if (why := too_wide(name, one))}
        if {"power_w", "latency_ms"} & set(withheld) and "energy_j" in estimates:
            withheld.setdefault("energy_j", "power or time, which it follows from, is withheld")
        limits = self.limits[row] if self.limits else ()
        return Prediction(
            estimates={name: one for name, one in estimates.items() if name not in withheld},
            in_domain=all(map(is_note, limits)),
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
