"""One predicted quantity: a value with its interval, its unit and its grade."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from forerun.data.metrics import metric
from forerun.service.schemas.answers import IntervalOut

FURTHER = ("p95", "in_domain", "grade", "grade_reason")
"""Fields that estimates of metrics have and other intervals do not."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A predicted value with its prediction interval.

    Attributes:
        value: best estimate, in `unit`.
        low, high: ends of the prediction interval, in `unit`; None without one.
        coverage: calibrated share of measured values in the interval; None where not calibrated.
        unit: unit of value and ends, such as ms, MiB, W or J.
        p95: value that 95 % of runs stay below, in `unit`; calibrated memory metrics only.
        in_domain: whether all inputs are in the training range; None where that is not known.
        grade: trust in the value: A measured on this device, B calibrated, C extrapolated; None
            where it is not graded.
        grade_reason: one sentence about the grade.
    """

    value: float
    low: float | None
    high: float | None
    coverage: float | None
    unit: str
    p95: float | None = None
    in_domain: bool | None = None
    grade: str | None = None
    grade_reason: str | None = None

    @classmethod
    def of(cls, answered: IntervalOut) -> Self:
        """The estimate of an answer."""
        return cls(
            answered.value,
            answered.low,
            answered.high,
            answered.coverage,
            answered.unit,
            *(getattr(answered, name, None) for name in FURTHER),
        )

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        interval = self.interval_text()
        return f"{self.text()} ({interval})" if interval else self.text()

    def text(self) -> str:
        """The value with its unit."""
        return _text(self.value, self.unit)

    def interval_text(self) -> str:
        """The interval with its unit; empty without one, with a star where not calibrated."""
        if self.low is None or self.high is None:
            return ""
        ends = f"{_text(self.low, self.unit)} to {_text(self.high, self.unit)}"
        return ends if self.coverage is not None else f"{ends} *"

    def record(self, name: str) -> Mapping[str, Any]:
        """Columns of a data frame: value, ends and coverage under names that begin with `name`."""
        return {
            name: self.value,
            f"{name}_low": self.low,
            f"{name}_high": self.high,
            f"{name}_coverage": self.coverage,
            f"{name}_grade": self.grade,
        }


def estimates_of(answered: Mapping[str, IntervalOut | None]) -> dict[str, Estimate]:
    """The known estimates of an answer: metric -> estimate."""
    return {name: Estimate.of(given) for name, given in answered.items() if given is not None}


def text_of(name: str, value: float | None) -> str:
    """A value of a metric with its unit, `not known` when it is None."""
    return metric(name).text(value)


def _text(value: float, unit: str) -> str:
    figures = f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:,.4g}"
    return f"{figures} {unit}".rstrip()
