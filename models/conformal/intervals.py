"""Intervals that hold the truth nine times in ten, on groups that training did not see.

Split conformal prediction on the logarithm of measured over predicted (Vovk et al. 2005; Romano
et al. 2019 for the two-sided form): whole groups (families of networks, devices) are held out in
turn, a predictor fitted on the rest answers for them, and quantiles of what it missed by become
the interval. A query on a device that training did not see takes the wider quantiles, measured by
holding out devices.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
POOLED = "all"
FEWEST = 30


@dataclass(frozen=True)
class LogQuantiles:
    """Lower and upper quantile of log(measured / predicted), a stratum each.

    Attributes:
        bounds: stratum -> (low, high); always holds `all`, which answers for the others.
        coverage: share of truths between the two.
    """

    bounds: Mapping[str, tuple[float, float]]
    coverage: float = 0.9

    @classmethod
    def of(
        cls, residuals: Column, strata: NDArray[np.str_], coverage: float = 0.9
    ) -> "LogQuantiles":
        """Quantiles by stratum with the finite-sample correction of split conformal prediction.

        Args:
            residuals: n values of log(measured / predicted) on held-out groups; NaN is left out.
            strata: n labels; one with fewer than 30 rows takes the pooled quantiles.
            coverage: share of truths that the interval shall hold.
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
        """Quantiles of n residuals without strata; NaN is left out."""
        return cls.of(residuals, np.full(len(residuals), POOLED))

    def around(self, values: Column, strata: Sequence[str]) -> tuple[Column, Column]:
        """Low and high around predicted values, shapes (n,); each holds its value inside."""
        pairs = np.array([self.bounds.get(s, self.bounds[POOLED]) for s in strata]).reshape(-1, 2)
        low = values * np.exp(np.minimum(pairs[:, 0], 0.0))
        high = values * np.exp(np.maximum(pairs[:, 1], 0.0))
        return low, high

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists."""
        return {"coverage": self.coverage, "bounds": {k: list(v) for k, v in self.bounds.items()}}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "LogQuantiles":
        """The quantiles that `to_json` wrote."""
        bounds = {k: (float(v[0]), float(v[1])) for k, v in content["bounds"].items()}
        return cls(bounds, float(content["coverage"]))


@dataclass(frozen=True)
class Intervals:
    """Quantiles for devices that training saw, and for devices that it did not.

    Attributes:
        seen: from groups (families, shapes) held out on devices that stay.
        unseen: from devices held out.
    """

    seen: LogQuantiles
    unseen: LogQuantiles = field(default_factory=lambda: LogQuantiles({POOLED: (-1.0, 1.0)}))

    def around(
        self, values: Column, strata: Sequence[str], seen_device: NDArray[np.bool_]
    ) -> tuple[Column, Column]:
        """Low and high around predicted values, shapes (n,)."""
        low, high = self.seen.around(values, strata)
        far_low, far_high = self.unseen.around(values, strata)
        return np.where(seen_device, low, far_low), np.where(seen_device, high, far_high)

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists."""
        return {"seen": self.seen.to_json(), "unseen": self.unseen.to_json()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Intervals":
        """The intervals that `to_json` wrote."""
        return cls(
            LogQuantiles.from_json(content["seen"]), LogQuantiles.from_json(content["unseen"])
        )


def held_out_folds(
    groups: NDArray[np.str_], folds: int, seed: int = 0
) -> Iterator[NDArray[np.bool_]]:
    """Masks of rows to hold out; every group is whole in one fold, groups spread by a seed."""
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
    """log(measured / predicted) of every row, by predictors that did not see its group.

    Args:
        log_measured: n values.
        masks: rows to hold out, one mask a fold.
        fit_predict: (rows to fit on, rows to answer) -> log predictions of the latter.

    Returns:
        n residuals, NaN for rows that no mask held out.
    """
    residuals = np.full(len(log_measured), np.nan)
    for held in masks:
        if held.all():
            continue
        residuals[held] = log_measured[held] - fit_predict(~held, held)
    return residuals


def _bounds(residuals: Column, coverage: float) -> tuple[float, float]:
    if not len(residuals):
        return (-1.0, 1.0)
    n = len(residuals)
    tail = (1.0 - coverage) / 2.0
    level = min(1.0, np.ceil((n + 1) * (1.0 - tail)) / n)
    high = float(np.quantile(residuals, level, method="higher"))
    low = float(-np.quantile(-residuals, level, method="higher"))
    return (low, high)
