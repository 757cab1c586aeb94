"""Prediction intervals of kernels, from devices and sizes that are held out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from forerun.data.columns import Column
from forerun.data.level import LEVEL
from forerun.models.conformal import Intervals, LogQuantiles, student_quantile
from forerun.models.llm_kernels.family_model import FamilyModel, FamilyRows, thin

UNSEEN_ROWS, SEEN_ROWS = 2000, 5000
"""Rows of each device that calibration uses."""
HELD_OUT_SHARE: Final = 0.25
"""Share of each device's sites that are held out for intervals on devices of the training set."""
_NEAR, _FAR = 0.4, 0.8
"""Residuals grow in proportion to distance + `_NEAR` up to the distance `_FAR`, and no further;
chosen on H200, B200, GB200 and GB300, each left out in turn."""


def interval_scale(distance: float) -> float:
    """Width of the interval on a device, relative to others at other distances.

    Args:
        distance: from the nearest device of the training set.
    """
    return _NEAR + min(distance, _FAR)


def calibrate(
    families: Mapping[str, Sequence[FamilyRows]], trees: Mapping[str, int], seed: int
) -> Intervals | None:
    """Quantiles of the residuals by family, on held-out devices and on held-out sites.

    Residuals on held-out devices are divided by `interval_scale`.

    Args:
        families: family -> rows of each device.
        trees: family -> boosting rounds.
        seed: random seed.
    """
    seen, unseen = _Residuals(), _Residuals()
    for name, parts in families.items():
        for errors in _of_sites([thin(part, SEEN_ROWS) for part in parts], trees[name], seed):
            seen.add(name, errors)
        few = _inflation(len(parts))
        for errors in _of_devices([thin(part, UNSEEN_ROWS) for part in parts], trees[name], seed):
            unseen.add(name, few * errors)
    return Intervals(seen.quantiles(), unseen.quantiles())


def _inflation(devices: int) -> float:
    """Student's quantile over the normal one: errors of few devices say little of the next one's.

    Residuals are around zero and not around a fitted mean, so no degree of freedom is lost.

    Args:
        devices: held-out devices of a family.
    """
    freedom = np.array([float(devices), np.inf])
    few, many = student_quantile(freedom, LEVEL)
    return float(few / many)


class _Residuals:
    """Residuals of several families, with both signs: that of the next device is not known."""

    def __init__(self) -> None:
        self._errors: list[Column] = [np.empty(0)]
        self._names: list[str] = []

    def add(self, family: str, errors: Column) -> None:
        self._errors += [errors, -errors]
        self._names += [family] * (2 * len(errors))

    def quantiles(self) -> LogQuantiles:
        names = np.array(self._names, dtype=np.str_)
        return LogQuantiles.of(np.concatenate(self._errors), names, LEVEL)


def _of_sites(parts: Sequence[FamilyRows], trees: int, seed: int) -> Iterator[Column]:
    """Residuals on sites that are left out on all devices."""
    rng = np.random.default_rng(seed)
    sites = np.unique(np.concatenate([part.table.site for part in parts]))
    left_out = sites[rng.random(len(sites)) < HELD_OUT_SHARE]
    held = [np.isin(part.table.site, left_out) for part in parts]
    if not left_out.size or any(mask.all() for mask in held):
        return
    others = [part.take(~mask) for part, mask in zip(parts, held, strict=True)]
    model = FamilyModel.fit(others, trees=trees, seed=seed)
    for part, mask in zip(parts, held, strict=True):
        yield _residuals(model, part.take(mask))


def _of_devices(parts: Sequence[FamilyRows], trees: int, seed: int) -> Iterator[Column]:
    """Residuals on each device, of a fit to the others, over the scale of its distance."""
    for place, part in enumerate(parts):
        others = [other for index, other in enumerate(parts) if index != place]
        if others:
            model = FamilyModel.fit(others, trees=trees, seed=seed)
            yield _residuals(model, part) / interval_scale(model.distance(part.device))


def _residuals(model: FamilyModel, part: FamilyRows) -> Column:
    return part.log_seconds - np.log(model.seconds(part.table, part.engines, part.device))
