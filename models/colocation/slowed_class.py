"""Classifies programs as slowed where the interval of relative speed is too wide for a decision.

An interval whose upper end is several times its lower end contains both "not slowed" and "takes
three times as long". The answer is then a class with its error rates on held-out groups.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from forerun.data.columns import Column

SLOWED_BELOW: Final = 0.9
"""Relative speed below which a program counts as slowed: the middle one of the three thresholds at
which evaluations report how well slowed runs are separated (`auc_below_0.9`)."""
WIDEST_RATIO: Final = 2.5
"""Ratio of upper to lower end beyond which an interval is withheld. Set by the requirement that an
answer support a placement decision, not fitted."""
FEWEST_OF_EACH: Final = 10
"""Held-out runs of each class that error rates require."""


@dataclass(frozen=True)
class ClassErrors:
    """Error rates of the class `slowed` on n held-out runs.

    Attributes:
        false_alarms: share of not-slowed runs that were classified as slowed.
        misses: share of slowed runs that were classified as not slowed.
        rows: n.
    """

    false_alarms: float
    misses: float
    rows: int

    @classmethod
    def of(cls, measured: Column, predicted: Column) -> Self | None:
        """Error rates over n runs; None with fewer than FEWEST_OF_EACH runs of either class.

        Args:
            measured: relative speeds, shape (n,); NaN is left out.
            predicted: predictions by fits without the run's group, shape (n,).
        """
        known = np.isfinite(measured) & np.isfinite(predicted)
        slowed, called = measured[known] < SLOWED_BELOW, predicted[known] < SLOWED_BELOW
        if min(int(slowed.sum()), int((~slowed).sum())) < FEWEST_OF_EACH:
            return None
        return cls(float(called[~slowed].mean()), float((~called[slowed]).mean()), len(slowed))

    @classmethod
    def where_wide(cls, measured: Column, predicted: Column, ratio: Column) -> Self | None:
        """Error rates over runs with withheld intervals, or over all runs if those are too few.

        Args:
            measured: as in `of`.
            predicted: as in `of`.
            ratio: upper over lower end of each interval, shape (n,).
        """
        wide = ratio > WIDEST_RATIO
        return cls.of(measured[wide], predicted[wide]) or cls.of(measured, predicted)


@dataclass(frozen=True)
class Slowed:
    """The class that replaces a withheld interval.

    Attributes:
        slowed: whether the predicted relative speed is below SLOWED_BELOW.
        errors: error rates of this class on held-out runs.
    """

    slowed: bool
    errors: ClassErrors


def classes(
    values: Column, low: Column, errors: Sequence[ClassErrors | None]
) -> list[Slowed | None]:
    """Classes of n predictions; None where there is an interval or error rates are missing.

    Args:
        values: predicted relative speeds, shape (n,).
        low: lower ends of their intervals, NaN where these are withheld.
        errors: n error rates.
    """
    rows = zip(values < SLOWED_BELOW, np.isnan(low), errors, strict=True)
    return [
        Slowed(bool(slowed), rates) if withheld and rates is not None else None
        for slowed, withheld, rates in rows
    ]
