"""Times of the kernels of one family, on devices with and without measurements.

A time is that of the closed form, times exp(residual). Each training device has a booster of the
residual. A device of the training set takes its own booster; another one takes those of the
training devices whose sheets are most like its own, weighted by similarity.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np

from forerun.data.columns import Column, Columns, Mask, Matrix, Names
from forerun.data.device import Device
from forerun.features.llm_kernels.chip import Chip
from forerun.features.llm_kernels.table import KernelTable
from forerun.models.domain.feature_range import Sheet, same_sheet, sheet
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.gradient_boosting.lean import coarse
from forerun.models.llm_kernels.base_time import BaseTime

SIMILAR: Final = 0.1
"""Squared distance of positions at which the weight of a training device falls to 1/e; chosen on
matrix products of H200, B200, GB200 and GB300, each left out in turn."""
MOST_EXPERTS: Final = 3
"""Training devices that another device takes boosters of."""
NEGLIGIBLE: Final = 0.02
"""Weight, relative to the largest, below which a training device is left out."""
BASE_ROWS: Final = 1500
"""Rows of each device that the closed form is fitted to."""
PARAMETERS: Final[Mapping[str, Any]] = {
    "objective": "l1",
    "num_leaves": 15,
    "learning_rate": 0.2,
    "min_data_in_leaf": 20,
    "feature_fraction": 0.7,
}
FIRST_FEATURES: Final = 5
"""Features of a family that few-shot corrections see; families give sizes and bounds first."""
ENGINES: Final = ("sglang", "vllm", "trtllm", "other")
"""Engines, in the order in which they stand in for one without measurements."""


@dataclass(frozen=True, slots=True)
class FamilyRows(Columns):
    """n measured kernels of one family on one device.

    Attributes:
        device: the device.
        engines: (n,) names of engines.
        table: features and terms.
        log_seconds: (n,) logarithms of measured times.
    """

    device: Device
    engines: Names
    table: KernelTable
    log_seconds: Column

    def __len__(self) -> int:
        return len(self.log_seconds)


@dataclass(frozen=True)
class DeviceBooster:
    """The booster of one training device.

    Attributes:
        sheet: its spec sheet.
        position: (4,) `Chip.position`.
        booster: of the residual, from the features of the family and of the engine.
    """

    sheet: Sheet
    position: Column
    booster: BoosterBag


@dataclass(frozen=True)
class FamilyModel:
    """Times of kernels of one family.

    Attributes:
        bases: engine -> closed form.
        devices: booster of each training device.
    """

    bases: Mapping[str, BaseTime] = field(default_factory=dict)
    devices: tuple[DeviceBooster, ...] = ()

    @classmethod
    def fit(cls, parts: Sequence[FamilyRows], *, trees: int, seed: int) -> Self:
        """Closed forms over all devices, then a booster for each.

        Args:
            parts: rows of each training device.
            trees: boosting rounds.
            seed: random seed.
        """
        names = sorted({str(name) for part in parts for name in np.unique(part.engines)})
        unfitted = cls({name: _base(parts, name) for name in names})
        fitted = []
        for part in parts:
            residual = part.log_seconds - unfitted._log_base(part.table, part.engines)
            bag = BoosterBag.fit(
                unfitted.booster_features(part.table, part.engines),
                residual,
                parameters=PARAMETERS,
                trees=trees,
                seeds=(seed,),
            )
            small = BoosterBag(tuple(map(coarse, bag.texts)))
            position = Chip.of(part.device).position
            fitted.append(DeviceBooster(sheet(part.device), position, small))
        return cls(unfitted.bases, tuple(fitted))

    def seconds(self, table: KernelTable, engines: Names, device: Device) -> Column:
        """Time of each kernel, shape (n,), seconds.

        Args:
            table: n kernels on `device`.
            engines: (n,) names of engines.
            device: where they run.
        """
        features = self.booster_features(table, engines)
        log_seconds = self._log_base(table, engines)
        for booster, weight in self._weighted(device):
            log_seconds = log_seconds + weight * booster.predict(features)
        return np.asarray(np.maximum(np.exp(log_seconds), table.least_s))

    def correction_columns(self, table: KernelTable, engines: Names, seconds: Column) -> Matrix:
        """Features of few-shot corrections, shape (n, columns): what an error may be linear in.

        They are the family's first features, the time over the bound, the shares of the terms in
        the closed form, and how the residual by each training device differs from the one used.

        Args:
            table: n kernels.
            engines: (n,) names of engines.
            seconds: (n,) `seconds` of these kernels.
        """
        shares = np.empty((len(table), 1 + table.serial_s.shape[1] + table.parallel_s.shape[1]))
        for name, rows in self._by_engine(engines):
            shares[rows] = self.bases[name].shares(table.take(rows))
        residual = np.log(seconds) - self._log_base(table, engines)
        features = self.booster_features(table, engines)
        others = [known.booster.predict(features) - residual for known in self.devices]
        sizes = table.features[:, :FIRST_FEATURES]
        return np.column_stack([sizes, np.log(seconds / table.bound_s), shares, *others])

    def distance(self, device: Device) -> float:
        """Distance of a device's position from that of the nearest training device; 0 for these."""
        return 0.0 if self.measured(device) else float(np.sqrt(min(self._squares(device))))

    def measured(self, device: Device) -> bool:
        """Whether kernels of the family were measured on the device."""
        return self._own(device) is not None

    def engine(self, name: str) -> str:
        """The engine whose measurements stand for one: itself, where it has some."""
        return next(engine for engine in (name, *ENGINES, *self.bases) if engine in self.bases)

    def _own(self, device: Device) -> DeviceBooster | None:
        own = sheet(device)
        return next((known for known in self.devices if same_sheet(known.sheet, own)), None)

    def _squares(self, device: Device) -> list[float]:
        position = Chip.of(device).position
        return [float(((known.position - position) ** 2).sum()) for known in self.devices]

    def _weighted(self, device: Device) -> Iterator[tuple[BoosterBag, float]]:
        own = self._own(device)
        if own is not None:
            yield own.booster, 1.0
            return
        squares = np.array(self._squares(device))
        nearest = np.argsort(squares, kind="stable")[:MOST_EXPERTS]
        weights = np.exp((squares[nearest[:1]] - squares[nearest]) / SIMILAR)
        nearest, weights = nearest[weights > NEGLIGIBLE], weights[weights > NEGLIGIBLE]
        for place, weight in zip(nearest.tolist(), (weights / weights.sum()).tolist(), strict=True):
            yield self.devices[place].booster, weight

    def _by_engine(self, engines: Names) -> Iterator[tuple[str, Mask]]:
        for name in np.unique(engines):
            yield self.engine(str(name)), engines == name

    def booster_features(self, table: KernelTable, engines: Names) -> Matrix:
        """Features of the family, and one column for each engine."""
        columns = np.zeros((len(table), len(ENGINES)))
        for name, rows in self._by_engine(engines):
            columns[rows, ENGINES.index(name)] = 1.0
        return np.hstack([table.features, columns])

    def _log_base(self, table: KernelTable, engines: Names) -> Column:
        logs = np.empty(len(table))
        for name, rows in self._by_engine(engines):
            logs[rows] = np.log(self.bases[name].seconds(table.take(rows)))
        return logs


def _base(parts: Sequence[FamilyRows], engine: str) -> BaseTime:
    """The closed form of one engine, in which each device has the same weight."""
    own = [part.take(part.engines == engine) for part in parts]
    thinned = [thin(part, BASE_ROWS) for part in own if len(part)]
    return BaseTime.fit(
        KernelTable.concatenate([part.table for part in thinned]),
        np.concatenate([part.log_seconds for part in thinned]),
        np.concatenate([np.full(len(part), 1.0 / len(part)) for part in thinned]),
    )


def thin(rows: FamilyRows, count: int) -> FamilyRows:
    """At most so many rows, drawn evenly at random with a fixed seed."""
    if len(rows) <= count:
        return rows
    drawn = np.random.default_rng(0).choice(len(rows), count, replace=False)
    return rows.take(np.sort(drawn))
