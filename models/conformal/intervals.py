"""Prediction intervals with 90 % coverage on groups outside the training set.

Split conformal prediction on log(measured / predicted) (Vovk et al. 2005; Romano et al. 2019 for
the two-sided form). Whole groups (families of networks, devices) are held out in turn and predicted
by a predictor fitted to the others; quantiles of these residuals are the interval. For a query on a
device outside the training set the quantiles come from held-out devices.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
POOLED = "all"
"""Stratum of the quantiles over all residuals."""
FEWEST = 30
"""Residuals from which on a stratum has quantiles of its own."""


@dataclass(frozen=True)
class LogQuantiles:
    """Lower and upper quantile of log(measured / predicted) for each stratum.

    Attributes:
        bounds: stratum -> (low, high); always contains `all`, for strata that are not listed.
        coverage: nominal share of measured values between the two.
    """

    bounds: Mapping[str, tuple[float, float]]
    coverage: float = 0.9

    @classmethod
    def of(
        cls, residuals: Column, strata: NDArray[np.str_], coverage: float = 0.9
    ) -> "LogQuantiles":
        """Quantiles by stratum with the finite-sample correction of split conformal prediction.

        Args:
            residuals: n values of log(measured / predicted) on held-out groups; NaN is ignored.
            strata: n labels; a stratum with fewer than `FEWEST` rows has the pooled quantiles.
            coverage: nominal coverage of the interval.
        """
        known = ~np.isnan(residuals)
        residuals, strata = residuals[known], strata[known]
        bounds = {POOLED: _bounds(residuals, coverage)}
        for stratum in np.unique(strata):
            rows = residuals[strata == stratum]
            if len(rows) >= FEWEST:
                bounds[str(stratum)] = _bounds(rows, coverage)
        return cls(bounds, coverage)

    @classmethod
    def pooled(cls, residuals: Column) -> "LogQuantiles":
        """Quantiles of n residuals without strata; NaN is ignored."""
        return cls.of(residuals, np.full(len(residuals), POOLED))

    def around(self, values: Column, strata: Sequence[str]) -> tuple[Column, Column]:
        """Low and high around n predicted values, shapes (n,); each interval contains its value."""
        pairs = np.array([self.bounds.get(s, self.bounds[POOLED]) for s in strata]).reshape(-1, 2)
        low = values * np.exp(np.minimum(pairs[:, 0], 0.0))
        high = values * np.exp(np.maximum(pairs[:, 1], 0.0))
        return low, high


@dataclass(frozen=True)
class Intervals:
    """Quantiles for devices in the training set and for other devices.

    Attributes:
        seen: quantiles on held-out groups (families, shapes), on devices in the training set.
        unseen: quantiles on held-out devices.
    """

    seen: LogQuantiles
    unseen: LogQuantiles = field(default_factory=lambda: LogQuantiles({POOLED: (-1.0, 1.0)}))

    def around(
        self, values: Column, strata: Sequence[str], seen_device: NDArray[np.bool_]
    ) -> tuple[Column, Column]:
        """Low and high around n predicted values, shapes (n,).

        Args:
            values: (n,) predicted values.
            strata: n labels.
            seen_device: (n,) whether the device is in the training set.
        """
        low, high = self.seen.around(values, strata)
        unseen_low, unseen_high = self.unseen.around(values, strata)
        return np.where(seen_device, low, unseen_low), np.where(seen_device, high, unseen_high)


def held_out_folds(
    groups: NDArray[np.str_], folds: int, seed: int = 0
) -> Iterator[NDArray[np.bool_]]:
    """Masks of the rows to hold out, one for each fold; every group is whole in one fold.

    Args:
        groups: n labels.
        folds: number of folds; with fewer groups, the number of groups.
        seed: assigns groups to folds.
    """
    names = np.unique(groups)
    order = np.random.default_rng(seed).permutation(len(names))
    fold_of = dict(zip(names[order], np.arange(len(names)) % folds, strict=True))
    fold = np.array([fold_of[g] for g in groups], dtype=np.intp)
    for number in range(min(folds, len(names))):
        yield fold == number


def held_out_residuals(
    log_measured: Column,
    masks: Iterator[NDArray[np.bool_]],
    fit_predict: Callable[[NDArray[np.bool_], NDArray[np.bool_]], Column],
) -> Column:
    """log(measured / predicted) of every row, by a predictor fitted without its group.

    Args:
        log_measured: n values.
        masks: masks of the rows to hold out, one for each fold.
        fit_predict: (training mask, held-out mask) -> log predictions of the held-out rows.

    Returns:
        n residuals, NaN for rows that are in no mask.
    """
    residuals = np.full(len(log_measured), np.nan)
    for held in masks:
        if held.all():
            continue
        residuals[held] = log_measured[held] - fit_predict(~held, held)
    return residuals


def _bounds(residuals: Column, coverage: float) -> tuple[float, float]:
    """Quantiles at ceil((n + 1) * level) / n; a factor of e either way without residuals."""
    if not len(residuals):
        return (-1.0, 1.0)
    n = len(residuals)
    tail = (1.0 - coverage) / 2.0
    level = min(1.0, np.ceil((n + 1) * (1.0 - tail)) / n)
    high = float(np.quantile(residuals, level, method="higher"))
    low = float(-np.quantile(-residuals, level, method="higher"))
    return (low, high)
