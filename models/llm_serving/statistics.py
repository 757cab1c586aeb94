"""Mean and percentiles of the times of requests."""

from dataclasses import dataclass

import numpy as np

from forerun.data.columns import Column


@dataclass(frozen=True, slots=True)
class Statistics:
    """Mean and percentiles of what is known of several values; NaN where nothing is."""

    mean: float
    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, values: Column) -> "Statistics":
        """Of the values of shape (n,) that are not NaN."""
        known = values[~np.isnan(values)]
        if not len(known):
            return cls(*[float("nan")] * 4)
        return cls(float(known.mean()), *map(float, np.percentile(known, (50, 90, 99))))
