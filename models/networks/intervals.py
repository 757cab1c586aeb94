"""Intervals of whole networks.

Seen devices: in units of a scale that grows with how far the predictor's two answers are apart and
with the distance to the nearest training network, from families of networks held out in turn. The
quantiles' level is raised until families held out of the quantiles themselves are covered as often
as promised, as networks of one family miss together. Unseen devices: of one width, from GPUs held
out in turn and the families' errors, both widened by what a device as a whole may be off; a shift
has no known sign, so these intervals are symmetric, and hits every execution mode, so modes share
them.
"""

from collections.abc import Callable
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forerun.models.conformal.intervals import Intervals, LogQuantiles, held_out_folds
from forerun.models.networks.features import TrainingRows

Column = NDArray[np.float64]
Mask = NDArray[np.bool_]
Missed = Callable[[Mask, Mask], tuple[Column, Column]]

COVERAGE = 0.9
FOLDS = 5
FARTHEST = 1.0
"""Distance to the nearest training network from which intervals grow no more; of families held out
1 % lie farther."""
FEWEST = 30
DEVICE_SHIFT = 0.117
"""Standard deviation of log(sustained / nominal) of bf16 matrix products over seven GPUs that no
network was timed on (A100, H100, H200, B200, GB200, GB300, L40S; AIConfigurator's tables)."""

_REFOLDINGS = 10
_THIRDS = 3
_LEVELS = np.arange(0.9, 0.971, 0.01)
_SLICES = 20
_NORMAL = np.array([NormalDist().inv_cdf((i + 0.5) / _SLICES) for i in range(_SLICES)])
"""Medians of equally likely slices of a standard normal."""


class WidthLaw(NamedTuple):
    """How the scale of errors grows; the quantiles of errors in its units do the rest.

    Attributes:
        spread_power: exponent of the spread between the predictor's two answers.
        novelty_slope: of the logarithm, by distance to the nearest training network.
    """

    spread_power: float = 1.0
    novelty_slope: float = 0.0

    def scale(self, spreads: Column, novelty: Column) -> Column:
        """Scale of the log errors of n rows, up to a factor, shape (n,)."""
        far = np.minimum(novelty, FARTHEST)
        return np.asarray(spreads**self.spread_power * np.exp(self.novelty_slope * far))

    @classmethod
    def of(
        cls, errors: Column, spreads: Column, novelty: Column, families: NDArray[np.str_]
    ) -> "WidthLaw":
        """The law of greatest likelihood if errors are Laplace-distributed.

        Args:
            errors: n log errors on families held out; NaN is left out.
            spreads: (n,) as `scale` takes them.
            novelty: (n,) likewise.
            families: n names; each counts by the root of its rows.
        """
        from scipy.optimize import minimize

        known = np.isfinite(errors) & np.isfinite(novelty)
        if known.sum() < FEWEST:
            return cls()
        _, family, counts = np.unique(families[known], return_inverse=True, return_counts=True)
        weights = (1.0 / np.sqrt(counts))[family]
        weights /= weights.sum()
        size = np.abs(errors[known])
        far = np.minimum(novelty[known], FARTHEST)
        columns = np.column_stack([np.ones(len(size)), np.log(spreads[known]), far])

        def loss(parameters: Column) -> float:
            scale = columns @ parameters
            return float(weights @ (scale + size * np.exp(-scale)))

        start = np.array([float(np.log(size.mean() + 1e-6)), 0.0, 0.0])
        found = minimize(loss, start, method="Nelder-Mead", options={"maxiter": 2000})
        return cls(max(0.0, float(found.x[1])), max(0.0, float(found.x[2])))


def intervals_of(
    taught: TrainingRows, errors: Column, spreads: Column, missed: Missed
) -> Intervals:
    """Intervals where the errors on families held out are known already.

    Args:
        taught: training rows.
        errors: n log errors on rows that the predictor asked did not see; NaN where not known.
        spreads: n spreads of its answers.
        missed: (rows to fit on, rows held out) -> log errors and scales of the latter, asked
            with devices held out.
    """
    seen = _covering(errors / spreads, taught.rows.modes, taught.family)
    return Intervals(seen, _unseen(taught, missed, errors))


def _covering(scores: Column, strata: NDArray[np.str_], families: NDArray[np.str_]) -> LogQuantiles:
    """Quantiles at the lowest level that covers families held out of them."""
    known = ~np.isnan(scores)
    scores, strata, families = scores[known], strata[known], families[known]
    for level in _LEVELS:
        if _coverage(scores, strata, families, float(level)) >= COVERAGE:
            break
    found = LogQuantiles.of(scores, strata, float(level))
    return LogQuantiles(found.bounds, COVERAGE)


def _coverage(
    scores: Column, strata: NDArray[np.str_], families: NDArray[np.str_], level: float
) -> float:
    inside = []
    for folding in range(_REFOLDINGS):
        for held in held_out_folds(families, _THIRDS, folding):
            if held.all():
                continue
            quantiles = LogQuantiles.of(scores[~held], strata[~held], level)
            ones = np.ones(int(held.sum()))
            low, high = quantiles.around(ones, strata[held].tolist())
            truth = np.exp(scores[held])
            inside.append((truth >= low) & (truth <= high))
    return float(np.concatenate(inside).mean()) if inside else 1.0


def _unseen(taught: TrainingRows, missed: Missed, errors: Column) -> LogQuantiles:
    on_cpu = taught.rows.modes == "cpu"
    scores, strata = [], []
    for cpu in (False, True):
        mine = on_cpu == cpu
        devices = np.unique(taught.device[mine])
        shift = DEVICE_SHIFT * np.sqrt(1.0 + 1.0 / max(1, len(devices)))
        parts = [errors[mine]]
        if len(devices) > 1:
            parts += [_on_another_device(taught, missed, str(device)) for device in devices]
        for error in parts:
            known = ~np.isnan(error)
            found = (error[known, None] + shift * _NORMAL).ravel()
            scores += [found, -found]
            strata.append(np.full(2 * len(found), "cpu" if cpu else "gpu"))
    return _pooled(np.concatenate(scores), np.concatenate(strata), np.unique(taught.rows.modes))


def _on_another_device(taught: TrainingRows, missed: Missed, device: str) -> Column:
    """Log errors on a device held out, in those ways of running that other devices teach."""
    mine = taught.device == device
    held = mine & np.isin(taught.rows.modes, np.unique(taught.rows.modes[~mine]))
    return missed(~mine, held)[0] if held.any() else np.zeros(0)


def _pooled(scores: Column, strata: NDArray[np.str_], modes: NDArray[np.str_]) -> LogQuantiles:
    found = LogQuantiles.of(scores, strata, COVERAGE).bounds
    whole = found.get("gpu", found["all"])
    bounds = {"all": whole}
    bounds |= {str(way): found.get("cpu", whole) if way == "cpu" else whole for way in modes}
    return LogQuantiles(bounds, COVERAGE)
