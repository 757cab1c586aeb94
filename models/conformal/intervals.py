"""Prediction intervals with 90 % coverage on groups outside the training set.

Split conformal prediction on log(measured / predicted) (Vovk et al. 2005; Romano et al. 2019 for
the two-sided form), conditional on strata (Mondrian conformal prediction, Vovk et al. 2003), and on
residuals over a scale where errors differ in size (normalised residuals, Papadopoulos et al. 2008).
For a query on a device outside the training set the quantiles come from held-out devices.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from forerun.data.level import LEVEL
from forerun.data.shapes import Bool, Float64, Text
from forerun.models.conformal.quantiles import conformal_quantile

Strata = Sequence[str] | Text[np.ndarray, " n"]
POOLED = "all"
"""Stratum of the quantiles over all residuals."""
FEWEST = 30
"""Residuals from which on a stratum has quantiles of its own."""
UNCALIBRATED = (-1.0, 1.0)
"""Bounds without residuals: a factor of e either way."""


@dataclass(frozen=True)
class LogQuantiles:
    """Lower and upper quantile of log(measured / predicted) for each stratum.

    Attributes:
        bounds: stratum -> (low, high); always contains `all`, for strata that are not listed.
        coverage: nominal share of measured values between the two.
    """

    bounds: Mapping[str, tuple[float, float]] = field(
        default_factory=lambda: {POOLED: UNCALIBRATED}
    )
    coverage: float = LEVEL

    @classmethod
    def of(
        cls,
        residuals: Float64[np.ndarray, " n"],
        strata: Text[np.ndarray, " n"] | None = None,
        coverage: float = 0.9,
        groups: Text[np.ndarray, " n"] | None = None,
    ) -> "LogQuantiles":
        """Quantiles by stratum with the finite-sample correction of split conformal prediction.

        Without `groups` the correction counts rows, although rows of a held-out group are
        correlated: with fewer than 19 groups, 90 % intervals that count groups end at the largest
        residual of any row. Declare groups where there are many more than that.

        Args:
            residuals: n values of log(measured / predicted) on held-out groups, or n multiples of
                a scale; NaN is ignored.
            strata: n labels; a stratum with fewer than `FEWEST` rows has the pooled quantiles, as
                have all rows by default.
            coverage: nominal coverage of the interval.
            groups: n labels of rows that the correction counts as one, and that weigh as one.
        """
        known = ~np.isnan(residuals)
        rows = {} if strata is None else {str(s): known & (strata == s) for s in np.unique(strata)}
        rows = {stratum: own for stratum, own in rows.items() if own.sum() >= FEWEST}
        bounds = {
            stratum: _bounds(residuals[own], coverage, None if groups is None else groups[own])
            for stratum, own in {POOLED: known, **rows}.items()
        }
        return cls(bounds, coverage)

    def log_ends(self, strata: Strata) -> Float64[np.ndarray, "n 2"]:
        """Low and high log bound of n rows, shape (n, 2); each pair contains 0."""
        labels = strata.tolist() if isinstance(strata, np.ndarray) else strata
        places = {label: place for place, label in enumerate(dict.fromkeys(labels))}
        ends = [self.bounds.get(label, self.bounds[POOLED]) for label in places]
        around = np.array([(min(low, 0.0), max(high, 0.0)) for low, high in ends]).reshape(-1, 2)
        return np.asarray(around[[places[label] for label in labels]])

    def around(
        self,
        values: Float64[np.ndarray, " n"],
        strata: Strata,
        scale: Float64[np.ndarray, " n"] | float = 1.0,
    ) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, " n"]]:
        """Low and high around n predicted values, shapes (n,); each interval contains its value.

        Args:
            values: (n,) predicted values.
            strata: n labels.
            scale: (n,) scale that the residuals were divided by.
        """
        return _around(values, self.log_ends(strata), scale)


@dataclass(frozen=True)
class Intervals:
    """Quantiles for devices in the training set and for other devices.

    Attributes:
        seen: quantiles on held-out groups (families, shapes), on devices in the training set.
        unseen: quantiles on held-out devices.
    """

    seen: LogQuantiles
    unseen: LogQuantiles = field(default_factory=LogQuantiles)

    def log_ends(
        self, strata: Strata, seen_device: Bool[np.ndarray, " n"]
    ) -> Float64[np.ndarray, "n 2"]:
        """Low and high log bound of n rows, shape (n, 2); each pair contains 0.

        Args:
            strata: n labels.
            seen_device: (n,) whether the device is in the training set.
        """
        ends = self.seen.log_ends(strata), self.unseen.log_ends(strata)
        return np.where(seen_device[:, None], *ends)

    def around(
        self,
        values: Float64[np.ndarray, " n"],
        strata: Strata,
        seen_device: Bool[np.ndarray, " n"],
        scale: Float64[np.ndarray, " n"] | float = 1.0,
    ) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, " n"]]:
        """Low and high around n predicted values, shapes (n,).

        Args:
            values: (n,) predicted values.
            strata: n labels.
            seen_device: (n,) whether the device is in the training set.
            scale: (n,) scale that the residuals on devices in the training set were divided by;
                bounds on other devices are not scaled.
        """
        return _around(
            values, self.log_ends(strata, seen_device), np.where(seen_device, scale, 1.0)
        )


def _around(
    values: Float64[np.ndarray, " n"],
    log_ends: Float64[np.ndarray, "n 2"],
    scale: Float64[np.ndarray, " n"] | float,
) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, " n"]]:
    low, high = values * np.exp(log_ends.T * scale)
    return low, high


def _bounds(
    residuals: Float64[np.ndarray, " n"], coverage: float, groups: Text[np.ndarray, " n"] | None
) -> tuple[float, float]:
    """Conformal quantiles of either tail; `UNCALIBRATED` without residuals."""
    if not len(residuals):
        return UNCALIBRATED
    level = 0.5 + coverage / 2.0
    low, high = (conformal_quantile(sign * residuals, level, groups) for sign in (-1.0, 1.0))
    return -low, high
