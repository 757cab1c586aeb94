"""Experts of one family of kernels: a booster of each measured device, on ratios to a base time.

    seconds = base(terms) x exp(ratio), joined with the time under the power limit

The base is a closed form of the terms of a `KernelTable`, and each device has a booster of the
logarithm of the ratio, which sees figures of the kernel and no figure of a device. A measured
device takes its own booster, another one takes those of the devices whose sheets are most like its
own, weighted by similarity.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix, Names
from forerun.data.device import Device
from forerun.features.llm_kernels.table import KernelGroup, KernelTable
from forerun.models.domain.feature_range import Sheet, same_sheet, sheet
from forerun.models.gradient_boosting import BoosterBag, load_together
from forerun.models.gradient_boosting.lean import coarse
from forerun.models.kernel_experts.base_time import BaseTime

OWN_WEIGHT: Final = 4.0
"""Weight of a measured device's own booster where others take part, relative to those of a device
with an equal sheet."""
NEGLIGIBLE: Final = 0.02
"""Weight, relative to the largest, below which a device is left out."""
BASE_ROWS: Final = 1500
"""Rows of each device that a closed form is fitted to."""
FIRST_FEATURES: Final = 5
"""Features of a family that few-shot corrections see; families give sizes and bounds first."""
ENGINES: Final = ("sglang", "vllm", "trtllm", "other")
"""Engines, in the order in which they stand in for one without measurements."""
SHARPNESS: Final = 6.0
"""Order of the norm that joins the time at full clock with that under the power limit."""
HUBER: Final = 0.15
"""Log error beyond which the loss of power-limited families is linear."""

Objective = Callable[[Column, Any], tuple[Column, Column]]
"""Predictions and data -> gradients and Hessians."""


@dataclass(frozen=True)
class Settings:
    """How a family is fitted.

    Attributes:
        trees: boosting rounds.
        parameters: of LightGBM.
        base: closed form; None where it is fitted to the rows of each engine.
        background: similarity that is added for every measured device. Where it is 0, similarity
            is relative to that of the nearest device, and a measured one takes its own booster.
        fewest: rows of a device from which on it has a booster.
    """

    trees: int
    parameters: Mapping[str, Any]
    base: BaseTime | None = None
    background: float = 0.0
    fewest: int = 1


@dataclass(frozen=True)
class DeviceBooster:
    """The booster of one measured device.

    Attributes:
        sheet: its spec sheet.
        position: coordinates of the device, as `KernelGroup.position`.
        booster: of the ratio, from the features of the family and of the engine.
        informative: share of its rows' time that the power limit does not decide.
    """

    sheet: Sheet
    position: Column
    booster: BoosterBag
    informative: float = 1.0


@dataclass(frozen=True)
class Family:
    """Times of kernels of one family.

    Attributes:
        bases: engine -> closed form.
        devices: booster of each measured device.
        background: similarity that is added for every measured device.
    """

    bases: Mapping[str, BaseTime] = field(default_factory=dict)
    devices: tuple[DeviceBooster, ...] = ()
    background: float = 0.0

    @classmethod
    def fit(cls, parts: Sequence[KernelGroup], settings: Settings, seed: int) -> Self:
        """Closed forms over all devices, then a booster for each.

        Args:
            parts: measured kernels of each device.
            settings: how to fit.
            seed: random seed.
        """
        names = sorted({str(name) for part in parts for name in np.unique(part.engines)})
        bases = {name: settings.base or _base(parts, name) for name in names}
        unfitted = cls(bases, (), settings.background)
        enough = [part for part in parts if len(part) >= settings.fewest]
        boosters = [unfitted._booster(part, settings, seed) for part in enough]
        return cls(bases, tuple(boosters), settings.background)

    def _booster(self, part: KernelGroup, settings: Settings, seed: int) -> DeviceBooster:
        table, log_base = part.table, self._log_base(part.table, part.engines)
        features, parameters = self.booster_features(table, part.engines), settings.parameters
        power_s = table.power_s
        if power_s.any():
            objective = _under_limit(part.log_values, np.exp(log_base), power_s)
            parameters = {**parameters, "objective": objective}
        bag = BoosterBag.fit(
            features,
            part.log_values - log_base,
            parameters=parameters,
            trees=settings.trees,
            seeds=(seed,),
        )
        small = BoosterBag(tuple(map(coarse, bag.texts)))
        share = float(_share(np.exp(log_base + small.predict(features)), power_s).mean())
        return DeviceBooster(sheet(part.device), np.array(part.position), small, share)

    def log_values(self, group: KernelGroup) -> Column:
        """Logarithm of the seconds of each kernel, shape (n,)."""
        log_seconds = self._log_base(group.table, group.engines)
        features = self.booster_features(group.table, group.engines)
        weighted = list(self._weighted(group))
        load_together(booster for booster, _ in weighted)
        for booster, weight in weighted:
            log_seconds = log_seconds + weight * booster.predict(features)
        seconds = _joined(np.exp(log_seconds), group.table.power_s)
        return np.asarray(np.log(np.maximum(seconds, group.table.least_s)))

    def correction_columns(self, group: KernelGroup, log_values: Column) -> Matrix:
        """Features of few-shot corrections, shape (n, columns): what an error may be linear in.

        They are the family's first features, the time over the bound, the shares of the terms in
        the closed form, and how the ratio by each measured device differs from the one used.

        Args:
            group: n kernels.
            log_values: (n,) `log_values` of these kernels.
        """
        table, engines = group.table, group.engines
        shares = np.empty((len(table), 1 + table.serial_s.shape[1] + table.parallel_s.shape[1]))
        for name, rows in self._by_engine(engines):
            shares[rows] = self.bases[name].shares(table.take(rows))
        ratio = log_values - self._log_base(table, engines)
        features = self.booster_features(table, engines)
        others = [known.booster.predict(features) - ratio for known in self.devices]
        sizes = table.features[:, :FIRST_FEATURES]
        over_bound = np.log(np.exp(log_values) / table.bound_s)
        return np.column_stack([sizes, over_bound, shares, *others])

    def distance(self, group: KernelGroup) -> float:
        """Distance of a device's position from that of the nearest measured one; 0 for these."""
        if self.measured(group.device):
            return 0.0
        return float(np.sqrt(min(self._squares(group), default=np.inf)))

    def measured(self, device: Device) -> bool:
        """Whether kernels of the family were measured on the device."""
        return self._own(device) is not None

    def engine(self, name: str) -> str:
        """The engine whose measurements stand for one: itself, where it has some."""
        return next(engine for engine in (name, *ENGINES, *self.bases) if engine in self.bases)

    def _own(self, device: Device) -> DeviceBooster | None:
        own = sheet(device)
        return next((known for known in self.devices if same_sheet(known.sheet, own)), None)

    def _squares(self, group: KernelGroup) -> list[float]:
        asked = np.array(group.position)
        return [float(((known.position - asked) ** 2).sum()) for known in self.devices]

    def _weighted(self, group: KernelGroup) -> Iterator[tuple[BoosterBag, float]]:
        own = self._own(group.device)
        if own is not None and not self.background:
            yield own.booster, 1.0
            return
        if not self.devices:
            return
        squares = np.array(self._squares(group))
        nearest = 0.0 if self.background else squares.min()
        informative = np.array([known.informative for known in self.devices])
        weights = (np.exp(nearest - squares) + self.background) * informative
        weights *= [OWN_WEIGHT if known is own else 1.0 for known in self.devices]
        weights[weights < NEGLIGIBLE * weights.max()] = 0.0
        for known, weight in zip(self.devices, (weights / weights.sum()).tolist(), strict=True):
            if weight:
                yield known.booster, weight

    def booster_features(self, table: KernelTable, engines: Names) -> Matrix:
        """Features of the family, and one column for each engine."""
        columns = np.zeros((len(table), len(ENGINES)))
        for name, rows in self._by_engine(engines):
            columns[rows, ENGINES.index(name)] = 1.0
        return np.hstack([table.features, columns])

    def _by_engine(self, engines: Names) -> Iterator[tuple[str, Mask]]:
        for name in np.unique(engines):
            yield self.engine(str(name)), engines == name

    def _log_base(self, table: KernelTable, engines: Names) -> Column:
        logs = np.empty(len(table))
        for name, rows in self._by_engine(engines):
            logs[rows] = np.log(self.bases[name].seconds(table.take(rows)))
        return logs


def _joined(at_full_clock: Column, power_s: Column) -> Column:
    """A smooth maximum of both times: the norm of order `SHARPNESS`."""
    return at_full_clock * (1.0 + (power_s / at_full_clock) ** SHARPNESS) ** (1.0 / SHARPNESS)


def _share(at_full_clock: Column, power_s: Column) -> Column:
    """Derivative of the log of `_joined` with respect to the log of the time at full clock."""
    return 1.0 / (1.0 + (power_s / at_full_clock) ** SHARPNESS)


def _under_limit(log_seconds: Column, base_s: Column, power_s: Column) -> Objective:
    """Huber's loss of the log time, as an objective of the ratio, by Gauss-Newton steps.

    Power-limited rows are hardly informative about the ratio. Their gradient is scaled by the
    derivative `_share`; leaving them out by a threshold would select rows by their noise.
    """

    def objective(ratio: Column, data: Any) -> tuple[Column, Column]:
        at_full_clock = base_s * np.exp(ratio)
        error = log_seconds - np.log(_joined(at_full_clock, power_s))
        share = _share(at_full_clock, power_s)
        slope = np.minimum(1.0, HUBER / np.maximum(np.abs(error), 1e-9))
        return -error * slope * share, share**2 * slope + 1e-3

    return objective


def _base(parts: Sequence[KernelGroup], engine: str) -> BaseTime:
    """The closed form of one engine, in which each device has the same weight."""
    own = [part.take(part.engines == engine) for part in parts]
    thinned = [thin(part, BASE_ROWS) for part in own if len(part)]
    return BaseTime.fit(
        KernelTable.concatenate([part.table for part in thinned]),
        np.concatenate([part.log_values for part in thinned]),
        np.concatenate([np.full(len(part), 1.0 / len(part)) for part in thinned]),
    )


def thin(rows: KernelGroup, count: int) -> KernelGroup:
    """At most so many rows, drawn evenly at random with a fixed seed."""
    if len(rows) <= count:
        return rows
    drawn = np.random.default_rng(0).choice(len(rows), count, replace=False)
    return rows.take(np.sort(drawn))
