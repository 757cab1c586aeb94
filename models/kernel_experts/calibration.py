"""Prediction intervals of kernels and of their sums, from devices and sizes that are held out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, Self

import numpy as np

from forerun.data.columns import Column, Matrix, Positions
from forerun.data.device import Device
from forerun.data.level import LEVEL
from forerun.features.llm_kernels.table import KernelGroup
from forerun.models.conformal import (
    POOLED,
    UNCALIBRATED,
    Intervals,
    LogQuantiles,
    student_quantile,
)
from forerun.models.kernel_experts.family import thin

UNSEEN_ROWS, SEEN_ROWS = 2000, 5000
"""Rows of each device that calibration uses."""
HELD_OUT_SHARE: Final = 0.25
"""Share of each device's sites that are held out for intervals on measured devices."""
_NEAR, FAR = 0.4 / 0.1**0.5, 0.8 / 0.1**0.5
"""Residuals grow in proportion to distance + `_NEAR` up to the distance `FAR`, and no further;
chosen on matrix products of H200, B200, GB200 and GB300, each left out in turn."""


class Expert(Protocol):
    """What a predictor knows of the kernels of one family."""

    def log_values(self, group: KernelGroup) -> Column:
        """Logarithm of what is predicted of each of n kernels, shape (n,)."""
        ...

    def correction_columns(self, group: KernelGroup, log_values: Column) -> Matrix:
        """What their errors may be linear in, shape (n, columns)."""
        ...

    def distance(self, group: KernelGroup) -> float:
        """Distance of the device from the nearest measured one; 0 for these."""
        ...

    def measured(self, device: Device) -> bool:
        """Whether kernels of the family were measured on the device."""
        ...


Fit = Callable[[str, Sequence[KernelGroup]], Expert]
"""Name of a family, and its measured kernels by device -> their expert."""


def interval_scale(distance: float, far: float = FAR) -> float:
    """Width of the interval on a device, relative to others at other distances.

    Args:
        distance: from the nearest measured device.
        far: distance from which on residuals grow no further.
    """
    return float(_NEAR + min(distance, far))


def calibrate(
    families: Mapping[str, Sequence[KernelGroup]],
    fit: Fit,
    seed: int,
    prior: float = 0.0,
    far: float = FAR,
) -> tuple[Intervals, tuple[float, float]]:
    """Quantiles of the residuals by family, on held-out devices and on held-out sites.

    Residuals on held-out devices are divided by `interval_scale`. With them come the shares of the
    squared residual that all kernels of a family on a device have in common, which do not average
    out in a sum: on measured devices, and on others.

    Args:
        families: family -> measured kernels of each device.
        fit: fits the expert of a family.
        seed: of the sites that are held out.
        far: as that of `interval_scale`.
        prior: held-out devices that the bounds of all families together count as, in those of each.
    """
    seen, unseen = _Residuals(), _Residuals()
    for name, parts in families.items():
        for errors in _of_sites(name, [thin(part, SEEN_ROWS) for part in parts], fit, seed):
            seen.add(name, errors)
        few = _inflation(len(parts))
        for errors in _of_devices(name, [thin(part, UNSEEN_ROWS) for part in parts], fit, far):
            unseen.add(name, few * errors)
    common = seen.common_share, unseen.common_share
    if not unseen:  # One device tells nothing of the next one; no scale makes its range wider.
        low, high = (end / interval_scale(far, far) for end in UNCALIBRATED)
        return Intervals(seen.quantiles(), LogQuantiles({POOLED: (low, high)}, LEVEL)), common
    devices = {name: len(parts) for name, parts in families.items()}
    return Intervals(seen.quantiles(), _shrunk(unseen.quantiles(), devices, prior)), common


def _shrunk(own: LogQuantiles, devices: Mapping[str, int], prior: float) -> LogQuantiles:
    """Bounds of families, as root mean squares of their own and of those of all families.

    Args:
        own: symmetric bounds.
        devices: family -> held-out devices, the weight of its own bounds.
        prior: weight of the common bounds.
    """
    _, pooled = own.bounds[POOLED]
    bounds = {POOLED: own.bounds[POOLED]}
    for name, (_, high) in own.bounds.items():
        if name != POOLED:
            square = (devices[name] * high**2 + prior * pooled**2) / (devices[name] + prior)
            bounds[name] = (-float(np.sqrt(square)), float(np.sqrt(square)))
    return LogQuantiles(bounds, own.coverage)


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
        self._errors: list[Column] = []
        self._names: list[str] = []

    def __bool__(self) -> bool:
        return any(map(len, self._errors))

    def add(self, family: str, errors: Column) -> None:
        self._errors.append(errors)
        self._names += [family] * (2 * len(errors))

    def quantiles(self) -> LogQuantiles:
        both = [np.empty(0), *(sign * errors for errors in self._errors for sign in (1.0, -1.0))]
        return LogQuantiles.of(np.concatenate(both), np.array(self._names, dtype=np.str_), LEVEL)

    @property
    def common_share(self) -> float:
        known = [errors for errors in self._errors if len(errors)]
        squares = sum(float(np.mean(errors**2)) for errors in known)
        return sum(float(np.mean(errors)) ** 2 for errors in known) / squares if squares else 1.0


def _of_sites(name: str, parts: Sequence[KernelGroup], fit: Fit, seed: int) -> Iterator[Column]:
    """Residuals on sites that are left out on all devices."""
    rng = np.random.default_rng(seed)
    sites = np.unique(np.concatenate([part.table.site for part in parts]))
    left_out = sites[rng.random(len(sites)) < HELD_OUT_SHARE]
    held = [np.isin(part.table.site, left_out) for part in parts]
    if not left_out.size or any(mask.all() for mask in held):
        return
    expert = fit(name, [part.take(~mask) for part, mask in zip(parts, held, strict=True)])
    for part, mask in zip(parts, held, strict=True):
        yield _residuals(expert, part.take(mask))


def _of_devices(name: str, parts: Sequence[KernelGroup], fit: Fit, far: float) -> Iterator[Column]:
    """Residuals on each device, of a fit to the others, over the scale of its distance."""
    for place, part in enumerate(parts):
        others = [other for index, other in enumerate(parts) if index != place]
        if others:
            expert = fit(name, others)
            yield _residuals(expert, part) / interval_scale(expert.distance(part), far)


def _residuals(expert: Expert, part: KernelGroup) -> Column:
    return part.log_values - expert.log_values(part)


@dataclass(frozen=True)
class Sums:
    """Sums over the kernels of n queries, and how far measured values may be from them.

    Errors of families are independent but for the common share of each, and those of kernels of
    one family count as one.

    Attributes:
        total: (n,) sums.
        by_class: (n, classes) the same by operator class.
        ends: low and high side -> (n, 2), sums of the reach in log units, weighted by `total`: its
            common part, and the squares of the families' own parts.
    """

    total: Column
    by_class: Matrix
    ends: tuple[Matrix, Matrix] = field(repr=False)

    @classmethod
    def empty(cls, size: int, classes: int) -> Self:
        """Sums of `size` queries without kernels."""
        sides = np.zeros((size, 2)), np.zeros((size, 2))
        return cls(np.zeros(size), np.zeros((size, classes)), sides)

    def add(
        self,
        rows: Positions,
        classes: Positions,
        values: Column,
        ends: tuple[Column, Column],
        common: float,
    ) -> None:
        """Add the k kernels of one family.

        Args:
            rows: (k,) queries that they belong to.
            classes: (k,) operator classes; -1 for none.
            values: (k,) values of all runs of each.
            ends: (k,) low and high ends of the values.
            common: share of the squared error that the family's kernels have in common with others.
        """
        size = len(self.total)
        self.total[:] += np.bincount(rows, weights=values, minlength=size)
        known = classes >= 0
        np.add.at(self.by_class, (rows[known], classes[known]), values[known])
        for side, end in zip(self.ends, ends, strict=True):
            reach = values * np.abs(np.log(end / values))
            of_family = np.bincount(rows, weights=reach, minlength=size)
            side[:, 0] += np.sqrt(common) * of_family
            side[:, 1] += (1.0 - common) * of_family**2

    def interval(self) -> tuple[Column, Column]:
        """Low and high ends, each (n,)."""
        low, high = (
            np.sqrt(side[:, 0] ** 2 + side[:, 1]) / np.maximum(self.total, 1e-300)
            for side in self.ends
        )
        return self.total * np.exp(-low), self.total * np.exp(high)
