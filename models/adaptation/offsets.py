"""A constant error for each stratum of a device: robust medians under a hierarchical prior.

The error of a predictor on a new device is mostly a constant for each execution mode or operator
family ("stratum").
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from forerun.data.columns import Column, Mask, Names, Positions

DEVICE_DEVIATION = 0.2
STRATUM_DEVIATION = 0.2
"""Standard deviations of the priors of the device's level and of strata, in log units. As they are
equal, half of the error of one stratum is attributed to the whole device. Errors of whole networks
on RTX 3090 and 4090, each held out, are 0.13 to 0.17; those of NeuSight's operator families on P4,
P100, V100 and T4 are 0.05 to 0.4."""
KNOWN_FACTOR = 0.3
"""Factor on both deviations for a device in the training set."""
DEVIATION_PRIOR, DEVIATION_PRIOR_ROWS = 0.15, 3.0
"""Prior standard deviation of the errors around their stratum's offset, and its weight in rows."""
_MEDIAN_EFFICIENCY = np.pi / 2.0
_MAD_TO_DEVIATION = 1.4826


@dataclass(frozen=True)
class Offsets:
    """Offsets of one device, in log space.

    The model has two levels: the offsets of strata are normally distributed around the level of the
    device, and that level around zero. The offset of a stratum is the median over its groups
    (models, operator shapes), so that a group with many runs counts once; it is shrunk according to
    its standard error.

    Attributes:
        level: offset of strata without a measurement.
        strata: name of a stratum -> offset.
        deviation: robust standard deviation of the errors around the offsets.
    """

    level: float
    strata: Mapping[str, float]
    deviation: float

    @classmethod
    def fit(
        cls, errors: Column, strata: Names, groups: Positions, prior_factor: float = 1.0
    ) -> Self:
        """Posterior means of the two-level model.

        Args:
            errors: (n,) log(measured / predicted); with n = 0, all offsets are zero.
            strata: (n,) names of strata.
            groups: (n,) codes of groups; rows of one group in a stratum count as one.
            prior_factor: factor on the standard deviations of the prior.
        """
        names = np.unique(strata)
        values = [_group_values(errors, groups, strata == name) for name in names]
        medians = np.array([np.median(v) for v in values])
        deviation = _robust_deviation([v - m for v, m in zip(values, medians, strict=True)])
        count = np.array([len(v) for v in values])
        variance = _MEDIAN_EFFICIENCY * deviation**2 / np.maximum(count, 1)
        between = (STRATUM_DEVIATION * prior_factor) ** 2
        weight = 1.0 / (variance + between)
        level = float(weight @ medians) / float(
            weight.sum() + (DEVICE_DEVIATION * prior_factor) ** -2
        )
        shrunk = (medians * between + level * variance) / (between + variance)
        offsets = {str(n): float(s) for n, s in zip(names, shrunk, strict=True)}
        return cls(level, offsets, deviation)

    def at(self, strata: Sequence[str] | Names) -> Column:
        """Offset of each of n strata, shape (n,)."""
        return np.array([self.strata.get(str(s), self.level) for s in strata], dtype=np.float64)


def _group_values(errors: Column, groups: Positions, rows: Mask) -> Column:
    """Median error of each group in these rows; the errors themselves if no group has several."""
    selected, of_group = errors[rows], groups[rows]
    codes, count = np.unique(of_group, return_counts=True)
    if count.max(initial=1) == 1:
        return selected
    return np.array([np.median(selected[of_group == code]) for code in codes])


def _robust_deviation(residuals: Sequence[Column]) -> float:
    """Standard deviation from the median absolute residual, shrunk to `DEVIATION_PRIOR`."""
    if not residuals:
        return DEVIATION_PRIOR
    pooled = np.concatenate(residuals)
    freedom = max(0, len(pooled) - len(residuals))
    observed = (_MAD_TO_DEVIATION * float(np.median(np.abs(pooled)))) ** 2 * freedom
    prior = DEVIATION_PRIOR**2 * DEVIATION_PRIOR_ROWS
    return float(np.sqrt((prior + observed) / (DEVIATION_PRIOR_ROWS + freedom)))
