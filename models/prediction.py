"""Predictions with intervals and limits: columns over n queries, and rows for single queries.

`OperatorTime` is the time of an operator, with which a predictor breaks down its sum.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Any, Final, Protocol, Self, runtime_checkable

import numpy as np

from forerun.data.columns import Column, Mask
from forerun.data.metrics import SHARES
from forerun.data.query import Query
from forerun.models.limit import Limit

WIDEST_RATIO: Final = 10.0
"""Largest ratio of the ends of a calibrated interval for which an estimate is returned. A wider
interval does not even determine the order of magnitude, so the estimate is withheld with a reason.
Chosen, not fitted. In the stored evaluations this concerns mostly designs of programs without any
measured design, and results in MLPerf Inference without earlier rounds."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Best estimate of one metric and its prediction interval: `low` <= `value` <= `high`.

    Attributes:
        value: best estimate, in the unit of the metric.
        low, high: ends of the interval; None without one.
        coverage: nominal share of measured values inside the interval; None without an interval or
            for an uncalibrated one.
    """

    value: float
    low: float | None = None
    high: float | None = None
    coverage: float | None = None


def too_wide(metric: str, estimate: Estimate) -> str | None:
    """Why an estimate is withheld; None if it is returned.

    Intervals without nominal coverage are always returned, as are metrics that are shares, for
    which the difference of the interval's ends matters rather than their ratio.
    """
    if estimate.coverage is None or estimate.low is None or estimate.high is None:
        return None
    if metric in SHARES or estimate.high <= WIDEST_RATIO * estimate.low:
        return None
    ratio = estimate.high / estimate.low if estimate.low > 0.0 else float("inf")
    return (
        f"too uncertain: the interval that holds {100 * estimate.coverage:.0f} % of such "
        f"cases spans a factor of {ratio:,.0f}; no answer is given above {WIDEST_RATIO:.0f}; "
        "a few measurements narrow it"
    )


@dataclass(frozen=True, slots=True)
class Prediction:
    """The prediction for one query.

    Attributes:
        estimates: metric name -> estimate, excluding withheld ones.
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
    a ranking of queries can be right even if single values are uncertain. A row, which is a
    `Prediction`, is meant for decisions and omits estimates with too wide an interval, unless
    `always`.

    Attributes:
        values: metric name -> (n,) values; NaN where there is no prediction.
        low, high: metric name -> (n,) ends of the intervals, for metrics with intervals.
        coverage: nominal coverage of the intervals, for all metrics or by metric; None for
            intervals without nominal coverage.
        limits: n tuples, empty for queries inside the domain.
        breakdowns_ms: n mappings operator class -> milliseconds, or empty.
        breakdowns_mib: n mappings component of memory -> MiB, or empty.
        row_coverage: metric name -> (n,) coverages that replace `coverage`, estimated on held-out
            rows of the device; NaN where `coverage` applies.
        always: (n,) flags of rows whose estimates are returned regardless of their intervals; None
            for no row.
        grades: metric -> n grades of trust, `A`, `B` or `C`, empty where there is no estimate; only
            complete answers have them.
    """

    values: Mapping[str, Column]
    low: Mapping[str, Column] = field(default_factory=dict)
    high: Mapping[str, Column] = field(default_factory=dict)
    coverage: float | Mapping[str, float | None] | None = None
    limits: Sequence[tuple[Limit, ...]] = ()
    breakdowns_ms: Sequence[Mapping[str, float]] = ()
    breakdowns_mib: Sequence[Mapping[str, float]] = ()
    row_coverage: Mapping[str, Column] = field(default_factory=dict)
    always: Mask | None = None
    grades: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of_metric(
        cls, metric: str, values: Column, ends: tuple[Column, Column] | None = None, **others: Any
    ) -> Self:
        """Predictions of one metric.

        Args:
            metric: its name.
            values: (n,) values.
            ends: (n,) lower and upper ends of the intervals; None without intervals.
            others: the other attributes.
        """
        low, high = ({}, {}) if ends is None else ({metric: end} for end in ends)
        return cls({metric: values}, low, high, **others)

    def __len__(self) -> int:
        return len(next(iter(self.values.values())))

    def coverage_of(self, metric: str) -> float | None:
        """Nominal coverage of one metric's intervals; None if they have none."""
        if self.coverage is None or isinstance(self.coverage, float):
            return self.coverage
        return self.coverage.get(metric)

    def __getitem__(self, row: int) -> Prediction:
        number = range(len(self))[row]
        (prediction,) = self._between(number, number + 1, self.values)
        return prediction

    def __iter__(self) -> Iterator[Prediction]:
        return self._between(0, len(self), self.values)

    def of_rows(self, count: int, metrics: Iterable[str]) -> Iterator[Prediction]:
        """The predictions of the first `count` rows for some metrics."""
        return self._between(0, count, metrics)

    def _between(self, first: int, end: int, metrics: Iterable[str]) -> Iterator[Prediction]:
        """The predictions of rows from `first` up to `end`, exclusive."""
        columns = {name: self._estimates(name, slice(first, end)) for name in metrics}
        for row in range(first, end):
            found = ((name, column[row - first]) for name, column in columns.items())
            yield self._prediction(
                row, {name: estimate for name, estimate in found if estimate is not None}
            )

    def _prediction(self, row: int, estimates: dict[str, Estimate]) -> Prediction:
        withheld = {
            name: why for name, estimate in estimates.items() if (why := too_wide(name, estimate))
        }
        if self.always is not None and self.always[row]:
            withheld = {}
        if {"power_w", "latency_ms"} & set(withheld) and "energy_j" in estimates:
            withheld.setdefault("energy_j", "power or time, from which it is computed, is withheld")
        limits = self.limits[row] if self.limits else ()
        return Prediction(
            estimates={
                name: estimate for name, estimate in estimates.items() if name not in withheld
            },
            in_domain=all(limit.in_domain for limit in limits),
            limits=limits,
            breakdown_ms=self.breakdowns_ms[row] if self.breakdowns_ms else {},
            breakdown_mib=self.breakdowns_mib[row] if self.breakdowns_mib else {},
            withheld=withheld,
        )

    def _estimates(self, metric: str, rows: slice) -> list[Estimate | None]:
        """Estimates of one metric at rows; None where it is not predicted."""
        values = self.values[metric][rows].tolist()
        if metric not in self.low:
            return [None if isnan(value) else Estimate(value) for value in values]
        stated, row_coverage = self.coverage_of(metric), self.row_coverage.get(metric)
        coverages = [nan] * len(values) if row_coverage is None else row_coverage[rows].tolist()
        low, high = self.low[metric][rows].tolist(), self.high[metric][rows].tolist()
        return [
            None if isnan(value)
            else Estimate(value) if isnan(down)
            else Estimate(value, down, up, stated if isnan(coverage) else coverage)
            for value, down, up, coverage in zip(values, low, high, coverages, strict=True)
        ]  # fmt: skip


class PredictionColumns:
    """Columns of n rows, filled in parts; the first prediction for a row and metric is kept.

    Attributes are those of `Predictions`, with the coverage of each row; metrics without a
    prediction or an interval are NaN.

    Args:
        size: n.
        metrics: names of the columns.
    """

    def __init__(self, size: int, metrics: Iterable[str]) -> None:
        names = [*metrics]
        self.values, self.low, self.high, self.row_coverage = (
            dict(zip(names, table, strict=True)) for table in np.full((4, len(names), size), np.nan)
        )
        self.always = np.zeros(size, dtype=np.bool_)
        self.limits: list[tuple[Limit, ...]] = [()] * size
        self.breakdowns_ms: list[Mapping[str, float]] = [{}] * size
        self.breakdowns_mib: list[Mapping[str, float]] = [{}] * size

    def lacking(self, metrics: Iterable[str]) -> Mask:
        """Rows without a prediction of any of these metrics, shape (n,)."""
        lacking = np.zeros(len(self.limits), dtype=np.bool_)
        for metric in metrics:
            lacking |= np.isnan(self.values[metric])
        return lacking

    def put(self, rows: Sequence[int], part: Predictions) -> None:
        """Fill in predictions of k queries.

        Args:
            rows: k positions among the n rows.
            part: predictions of their queries.
        """
        index = np.asarray(rows, dtype=np.intp)
        if part.always is not None:
            self.always[index] |= part.always
        for metric in (metric for metric in part.values if metric in self.values):
            coverage = part.coverage_of(metric)
            new = np.isnan(self.values[metric][index])
            filled = index[new]
            self.values[metric][filled] = part.values[metric][new]
            if metric in part.low:
                row_coverage = part.row_coverage.get(metric)
                # Parts differ in coverage, so each row keeps that of its part.
                stated = np.nan if coverage is None else coverage
                self.low[metric][filled] = part.low[metric][new]
                self.high[metric][filled] = part.high[metric][new]
                self.row_coverage[metric][filled] = (
                    stated
                    if row_coverage is None
                    else np.where(np.isnan(row_coverage[new]), stated, row_coverage[new])
                )
            for name, mine, others in (
                ("latency_ms", self.breakdowns_ms, part.breakdowns_ms),
                ("peak_memory_mib", self.breakdowns_mib, part.breakdowns_mib),
            ):
                if metric == name and others:
                    for place in np.flatnonzero(new).tolist():
                        mine[rows[place]] = others[place]
        for row, limits in zip(rows, part.limits, strict=False):
            self.limits[row] = tuple(dict.fromkeys(self.limits[row] + limits))

    def multiply_energy(self) -> None:
        """Set energy to power times time if all three are metrics."""
        for columns in (self.values, self.low, self.high):
            if {"power_w", "latency_ms", "energy_j"} <= columns.keys():
                columns["energy_j"] = columns["power_w"] * columns["latency_ms"] / 1e3

    def predictions(self) -> Predictions:
        """The columns as filled so far."""
        return Predictions(**vars(self))


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """Total time of operators with equal labels, before whole-network corrections.

    Attributes:
        label: the operator with its shapes; several operators joined by `+` are one fused kernel.
        op_class: operator class in the predictor's breakdown.
        count: number of executions in one pass.
        ms: their total time, milliseconds, never negative.
    """

    label: str
    op_class: str
    count: float
    ms: float


@runtime_checkable
class TimesOperators(Protocol):
    """A predictor that gives the times of a query's operators."""

    def operator_times(self, query: Query) -> list[OperatorTime]:
        """Time of each operator in the predictor's sum, before corrections of the whole."""
        ...


def merged_times(
    labels: Sequence[str], op_classes: Sequence[str], counts: Column, ms: Column
) -> list[OperatorTime]:
    """The times of n operators, added up over equal label and class.

    Args:
        labels: n labels.
        op_classes: n operator classes.
        counts: (n,) executions in one pass.
        ms: (n,) time of all executions of each, milliseconds.
    """
    totals: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    keys = zip(labels, op_classes, strict=True)
    for key, count, time_ms in zip(keys, counts.tolist(), ms.tolist(), strict=True):
        totals[key][0] += count
        totals[key][1] += time_ms
    return [OperatorTime(*key, *total) for key, total in totals.items()]
