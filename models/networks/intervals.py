"""Calibrates prediction intervals of whole networks on held-out families and devices."""

from collections.abc import Callable
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from forerun.data.columns import Column, Mask, Names
from forerun.data.level import LEVEL
from forerun.models.conformal import (
    POOLED,
    UNCALIBRATED,
    Intervals,
    LogQuantiles,
    group_weights,
    held_out_folds,
    weighted_quantile,
)
from forerun.models.networks.domain import ENOUGH_ROWS

RefitErrors = Callable[[Mask, Mask], Column]
"""Masks (n,) of rows to fit on and of held-out rows -> log errors of the latter."""
FOLDS = 5
FARTHEST = 1.0
"""Distance to the nearest training network beyond which intervals stop widening; 1 % of the
held-out families lie farther."""
FEWEST = 30
DEVICE_SHIFT = 0.117
"""Standard deviation of log(sustained / nominal) of bf16 matrix products across seven GPUs without
timed networks (A100, H100, H200, B200, GB200, GB300, L40S; AIConfigurator's tables)."""
_MOST_SPREAD = 0.5
_SPREAD_FLOOR = 0.06
_REFOLDINGS = 10
_THIRDS = 3
_LEVELS = np.arange(0.9, 0.971, 0.01)
_SLICES = 201
_NORMAL = np.array([NormalDist().inv_cdf((i + 0.5) / _SLICES) for i in range(_SLICES)])
"""Medians of `_SLICES` equally likely slices of a standard normal distribution."""


class WidthLaw(NamedTuple):
    """Scale of log errors as a function of spread and novelty.

    Attributes:
        spread_power: exponent of the spread, which is the size of the correction.
        novelty_slope: slope of the log scale in the distance to the nearest training network.
    """

    spread_power: float = 1.0
    novelty_slope: float = 0.0

    def scale(self, spreads: Column, novelty: Column) -> Column:
        """Scale of the log errors of n rows, up to a constant factor, shape (n,).

        Args:
            spreads: (n,) sizes of the corrections in log units, from `spread_of`.
            novelty: (n,) distances to the nearest training network.
        """
        distance = np.minimum(novelty, FARTHEST)
        return np.asarray(spreads**self.spread_power * np.exp(self.novelty_slope * distance))

    @classmethod
    def of(cls, errors: Column, spreads: Column, novelty: Column, families: Names) -> "WidthLaw":
        """The maximum-likelihood fit for Laplace-distributed errors.

        Args:
            errors: (n,) log errors on held-out families; NaN is ignored.
            spreads: (n,) as in `scale`.
            novelty: (n,) as in `scale`.
            families: n names; a family weighs as the square root of its number of rows.
        """
        from scipy.optimize import minimize

        known = np.isfinite(errors) & np.isfinite(novelty)
        if known.sum() < FEWEST:
            return cls()
        weights = np.sqrt(group_weights(families[known]))
        weights /= weights.sum()
        absolute = np.abs(errors[known])
        distance = np.minimum(novelty[known], FARTHEST)
        columns = np.column_stack([np.ones(len(absolute)), np.log(spreads[known]), distance])

        def loss(parameters: Column) -> float:
            scale = columns @ parameters
            return float(weights @ (scale + absolute * np.exp(-scale)))

        start = np.array([float(np.log(absolute.mean() + 1e-6)), 0.0, 0.0])
        solution = minimize(loss, start, method="Nelder-Mead", options={"maxiter": 2000})
        return cls(max(0.0, float(solution.x[1])), max(0.0, float(solution.x[2])))


def spread_of(correction: Column) -> Column:
    """Absolute correction of whole networks in log units, clipped, plus a floor; shape (n,)."""
    return np.asarray(_SPREAD_FLOOR + np.minimum(np.abs(correction), _MOST_SPREAD))


class CalibrationRows(NamedTuple):
    """n training rows as calibration needs them.

    Attributes:
        modes: (n,) execution modes, used as strata.
        family: (n,) groups of workloads with correlated errors.
        device: (n,) groups of devices that are held out together.
    """

    modes: Names
    family: Names
    device: Names


def intervals_of(
    rows: CalibrationRows, errors: Column, scale: Column, refit_errors: RefitErrors
) -> Intervals:
    """Calibrate intervals on errors of held-out families, and on refits without each device.

    Seen devices: quantiles of log errors on held-out families, divided by a scale that grows with
    the correction and with the distance to the nearest training network. Errors within a family are
    correlated, so the level of the quantiles is raised until intervals reach their coverage on
    families excluded from the quantiles themselves.

    Unseen devices: intervals of constant width from errors on held-out GPUs and held-out families,
    both convolved with the distribution of the error common to a device. These intervals are
    symmetric because the sign of that error is unknown, and identical for all execution modes
    because it is common to them.

    Args:
        rows: n training rows.
        errors: (n,) log errors of fits without the row's family; NaN where unknown.
        scale: (n,) scales of these errors.
        refit_errors: fits on some rows and returns the errors on others; called with each group of
            devices held out.
    """
    seen = _covering(errors / scale, rows.modes, rows.family)
    return Intervals(seen, _unseen(rows, refit_errors, errors))


def _covering(scores: Column, strata: Names, families: Names) -> LogQuantiles:
    """Quantiles at the lowest level whose intervals cover `LEVEL` of held-out families' rows."""
    known = ~np.isnan(scores)
    scores, strata, families = scores[known], strata[known], families[known]
    for level in _LEVELS:
        if _coverage(scores, strata, families, float(level)) >= LEVEL:
            break
    quantiles = LogQuantiles.of(scores, strata, float(level))
    return LogQuantiles(quantiles.bounds, LEVEL)


def _coverage(scores: Column, strata: Names, families: Names, level: float) -> float:
    """Coverage of intervals at a level on families excluded from the quantiles."""
    inside = []
    for folding in range(_REFOLDINGS):
        for held in held_out_folds(families, _THIRDS, folding):
            quantiles = LogQuantiles.of(scores[~held], strata[~held], level)
            low, high = quantiles.log_ends(strata[held]).T
            inside.append((low <= scores[held]) & (scores[held] <= high))
    return float(np.concatenate(inside).mean()) if inside else 1.0


def _unseen(training: CalibrationRows, refit_errors: RefitErrors, errors: Column) -> LogQuantiles:
    """Symmetric bounds for unseen devices, separately for GPUs and CPUs.

    Each held-out set (the families, and every device) has the same weight regardless of its number
    of rows and of slices of the shift, because the rows of a device share its error. The number of
    sets, two to a dozen, is not corrected for further, since the bound would be the largest error
    of any row. The factor on the shift accounts for the small number of devices.
    """
    on_cpu = training.modes == "cpu"
    reach: dict[bool, float] = {}
    for cpu in (False, True):
        of_kind = on_cpu == cpu
        names, counts = np.unique(training.device[of_kind], return_counts=True)
        devices = names[counts >= ENOUGH_ROWS]
        shift = DEVICE_SHIFT * np.sqrt(1.0 + 1.0 / max(1, len(devices)))
        sets = [errors[of_kind]]
        if len(devices) > 1:
            sets += [_on_another_device(training, refit_errors, str(device)) for device in devices]
        known = [part[~np.isnan(part)] for part in sets]
        shifted = [np.abs(part[:, None] + shift * _NORMAL).ravel() for part in known if len(part)]
        if shifted:
            weights = np.concatenate([np.full(len(part), 1.0 / len(part)) for part in shifted])
            reach[cpu] = weighted_quantile(np.concatenate(shifted), weights, LEVEL)
    whole = reach.get(False, reach.get(True, UNCALIBRATED[1]))
    ends = {str(mode): reach.get(mode == "cpu", whole) for mode in np.unique(training.modes)}
    bounds = {POOLED: whole, **ends}
    return LogQuantiles({mode: (-end, end) for mode, end in bounds.items()}, LEVEL)


def _on_another_device(training: CalibrationRows, refit_errors: RefitErrors, device: str) -> Column:
    """Log errors on a held-out device, in execution modes also measured on other devices."""
    on_device = training.device == device
    held = on_device & np.isin(training.modes, np.unique(training.modes[~on_device]))
    return refit_errors(~on_device, held) if held.any() else np.zeros(0)
