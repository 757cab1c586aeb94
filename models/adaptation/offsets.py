"""A constant error for each stratum of a device: robust medians under a hierarchical prior.

The error of a predictor on a new device is mostly one constant for each execution mode or operator
family. The model is two-level: strata scatter around the device's level, and the level around
zero. A stratum is estimated by the median over its groups (models, operator shapes), so that many
runs of one model count once, and the median is shrunk by its standard error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
Names = NDArray[np.str_]

DEVICE_DEVIATION = 0.2
STRATUM_DEVIATION = 0.2
"""Standard deviations of the prior in log units: half of what is known of one stratum is taken to
hold for the whole device. Whole networks on RTX 3090 and 4090, left out, are off by 0.13 to 0.17,
NeuSight's operator families on P4, P100, V100 and T4 by 0.05 to 0.4."""
KNOWN_FACTOR = 0.3
"""Factor on both for a device in the training set."""
SPREAD_PRIOR, SPREAD_PRIOR_ROWS = 0.15, 3.0
"""Spread of the errors around their stratum's offset before any row, worth so many rows."""
_MEDIAN_EFFICIENCY = np.pi / 2.0
_MAD_TO_DEVIATION = 1.4826


@dataclass(frozen=True)
class Offsets:
    """Offsets of one device, in log space.

    Attributes:
        level: of strata without a measurement.
        strata: name -> offset.
        spread: robust standard deviation of the errors around the offsets.
    """

    level: float
    strata: Mapping[str, float]
    spread: float

    @classmethod
    def fit(
        cls, errors: Column, strata: Names, groups: NDArray[np.intp], prior_factor: float = 1.0
    ) -> Self:
        """Posterior means of the two-level model.

        Args:
            errors: (n,) log(measured / predicted); no rows give zero offsets.
            strata: (n,) names.
            groups: (n,) codes; rows of one group in a stratum count as one.
            prior_factor: factor on the deviations of the prior.
        """
        names = np.unique(strata)
        values = [_group_values(errors, groups, strata == name) for name in names]
        medians = np.array([np.median(v) for v in values])
        spread = _spread([v - m for v, m in zip(values, medians, strict=True)])
        count = np.array([len(v) for v in values])
        variance = _MEDIAN_EFFICIENCY * spread**2 / np.maximum(count, 1)
        between = (STRATUM_DEVIATION * prior_factor) ** 2
        weight = 1.0 / (variance + between)
        level = float(weight @ medians) / float(
            weight.sum() + (DEVICE_DEVIATION * prior_factor) ** -2
        )
        shrunk = (medians * between + level * variance) / (between + variance)
        found = {str(n): float(s) for n, s in zip(names, shrunk, strict=True)}
        return cls(level, found, spread)

    def at(self, strata: Sequence[str] | Names) -> Column:
        """Offset of each name, (n,)."""
        return np.array([self.strata.get(str(s), self.level) for s in strata], dtype=np.float64)


def _group_values(errors: Column, groups: NDArray[np.intp], rows: NDArray[np.bool_]) -> Column:
    """One value a group of these rows: the median of its errors."""
    mine, of_group = errors[rows], groups[rows]
    codes, count = np.unique(of_group, return_counts=True)
    if count.max(initial=1) == 1:
        return mine
    return np.array([np.median(mine[of_group == code]) for code in codes])


def _spread(residuals: Sequence[Column]) -> float:
    """Median absolute deviation, as a standard deviation, with a weak prior."""
    if not residuals:
        return SPREAD_PRIOR
    pooled = np.concatenate(residuals)
    freedom = max(0, len(pooled) - len(residuals))
    observed = (_MAD_TO_DEVIATION * float(np.median(np.abs(pooled)))) ** 2 * freedom
    prior = SPREAD_PRIOR**2 * SPREAD_PRIOR_ROWS
    return float(np.sqrt((prior + observed) / (SPREAD_PRIOR_ROWS + freedom)))
