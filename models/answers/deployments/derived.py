"""Arithmetic on estimates that propagates their intervals."""

from math import exp, hypot, log

from forerun.models.prediction import Estimate


def scaled(estimate: Estimate, factor: float) -> Estimate:
    """The estimate multiplied by a constant."""
    low, high = (None if end is None else factor * end for end in (estimate.low, estimate.high))
    return Estimate(factor * estimate.value, low, high, estimate.coverage)


def inverse(estimate: Estimate, factor: float) -> Estimate:
    """A constant divided by a positive estimate."""
    low, high = (
        None if end is None or not end > 0 else factor / end
        for end in (estimate.high, estimate.low)
    )
    coverage = None if low is None or high is None else estimate.coverage
    return Estimate(factor / estimate.value, low, high, coverage)


def product(one: Estimate, other: Estimate) -> Estimate:
    """The product of two positive estimates whose log-errors are independent.

    Without an interval if either factor has none.
    """
    value = one.value * other.value
    ends = [(estimate.value, estimate.low, estimate.high) for estimate in (one, other)]
    if any(low is None or high is None or not low > 0 for _, low, high in ends):
        return Estimate(value)
    down = hypot(*(log(middle / low) for middle, low, _ in ends if low is not None))
    up = hypot(*(log(high / middle) for middle, _, high in ends if high is not None))
    known = None not in (one.coverage, other.coverage)
    return Estimate(value, value * exp(-down), value * exp(up), one.coverage if known else None)
