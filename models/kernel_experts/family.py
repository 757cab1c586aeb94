"""Predicts kernels with one expert per family: fit, few-shot adaptation, intervals, sums.

    seconds = base(terms) x exp(ratio), joined with the time under the power limit

The base is an analytical model of the terms of a `KernelTable` (`BaseTime`): a launch, serial
terms, and terms that overlap. Each device has a booster of the log ratio, whose features describe
only the kernel. A measured device uses its own booster; another one uses those of the devices with
the most similar spec sheets, weighted by similarity. Intervals of kernels and of their sums come
from held-out devices and sizes (`calibrate`).
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Protocol, Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix, Names, Positions
from forerun.data.device import Device
from forerun.data.level import LEVEL
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.llm_kernels.table import KernelGroup, KernelTable
from forerun.features.operators.kinds import OPERATOR_CLASSES, by_class
from forerun.models.adaptation.support_gp import ENOUGH_ROWS, Standardizer, SupportGP
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import (
    POOLED,
    UNCALIBRATED,
    Intervals,
    LogQuantiles,
    student_quantile,
)
from forerun.models.domain.feature_range import KnownDevices, Sheet, same_sheet, sheet
from forerun.models.gradient_boosting import BoosterBag, load_together
from forerun.models.gradient_boosting.bags import coarse
from forerun.models.limit import Limit
from forerun.models.prediction import Predictions
from forerun.models.predictor import SETTING

LAUNCH_UNIT_S = 1e-6
_START_SERIAL, _START_PARALLEL, _START_SHARPNESS = 0.5, 1.3, 1.0
_LEAST, _MOST = -14.0, 7.0
"""Range of the log factors."""


@dataclass(frozen=True)
class BaseTime:
    """Analytical model of one kernel family, as factors of the terms of a `KernelTable`:

        launch x its relative time + sum(serial factor x term)
            + (sum((parallel factor x term) ** p)) ** (1 / p)

    Attributes:
        launch_s: least time of a kernel at the reference clock of launches, seconds.
        serial: (serial terms,) factors.
        parallel: (parallel terms,) factors; the inverse is the achieved share of the peak rate.
        sharpness: p - 1; large where only the longest term counts, 0 where terms add up.
    """

    launch_s: float
    serial: Column
    parallel: Column
    sharpness: float

    @classmethod
    def fit(cls, table: KernelTable, log_seconds: Column, weights: Column) -> Self:
        """Fit the factors by robust regression of the log time.

        Args:
            table: n kernels, from any devices.
            log_seconds: (n,) logarithms of their measured times.
            weights: (n,) weights.
        """
        from scipy.optimize import least_squares

        serial, parallel = table.serial_s.shape[1], table.parallel_s.shape[1]
        factors = [2.0, *[_START_SERIAL] * serial, *[_START_PARALLEL] * parallel, _START_SHARPNESS]
        root = np.sqrt(weights / weights.mean())

        def errors(logs: Column) -> Column:
            return np.asarray(root * (np.log(cls._of(logs, serial).seconds(table)) - log_seconds))

        start = np.log(factors)
        found = least_squares(errors, start, bounds=(_LEAST, _MOST), loss="soft_l1", f_scale=0.1)
        return cls._of(found.x, serial)

    @classmethod
    def _of(cls, logs: Column, serial: int) -> Self:
        factors = np.exp(logs)
        return cls(
            launch_s=float(factors[0]) * LAUNCH_UNIT_S,
            serial=factors[1 : 1 + serial],
            parallel=factors[1 + serial : -1],
            sharpness=float(factors[-1]),
        )

    def seconds(self, table: KernelTable) -> Column:
        """Time of each kernel, shape (n,), seconds."""
        return np.asarray(self._parts(table).sum(axis=1))

    def shares(self, table: KernelTable) -> Matrix:
        """Elasticity of each kernel's time in each factor, shape (n, factors).

        Columns are launch, serial terms and parallel terms; each row sums to 1.
        """
        parts = self._parts(table)
        return np.asarray(parts / parts.sum(axis=1, keepdims=True))

    def _parts(self, table: KernelTable) -> Matrix:
        """Seconds of launch and serial terms, and of parallel terms split by elasticity."""
        power = 1.0 + self.sharpness
        terms = table.parallel_s * self.parallel
        longest = terms.max(axis=1, keepdims=True)
        # Dividing terms by the longest keeps large powers within floating-point range.
        powers = (terms / longest) ** power
        total = powers.sum(axis=1, keepdims=True)
        together = longest * total ** (1.0 / power)
        launch = (self.launch_s * table.launch + table.start_s)[:, None]
        return np.hstack([launch, table.serial_s * self.serial, together * powers / total])


OWN_WEIGHT: Final = 4.0
"""Weight of a measured device's own booster, where other devices contribute too, relative to that
of a device with an identical spec sheet."""
NEGLIGIBLE: Final = 0.02
"""Weight relative to the largest below which a device is dropped."""
BASE_ROWS: Final = 1500
"""Rows per device that an analytical model is fitted to."""
FIRST_FEATURES: Final = 5
"""Features of a family used in few-shot corrections; families list sizes and bounds first."""
ENGINES: Final = ("sglang", "vllm", "trtllm", "other")
"""Engines, in the order in which they substitute for one without measurements."""
SHARPNESS: Final = 6.0
"""Order of the norm that combines the time at full clock with that under the power limit."""
HUBER: Final = 0.15
"""Log error beyond which the loss of power-limited families becomes linear."""

Objective = Callable[[Column, Any], tuple[Column, Column]]
"""Predictions and data -> gradients and Hessians."""


@dataclass(frozen=True)
class Settings:
    """Settings for fitting a family.

    Attributes:
        trees: boosting rounds.
        parameters: of LightGBM.
        base: analytical model; None to fit one to the rows of each engine.
        background: similarity added for every measured device. At 0, similarity is relative to
            that of the nearest device, and a measured device uses only its own booster.
        fewest: rows from which a device gets a booster.
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
        booster: of the log ratio, from the features of the family and of the engine.
        informative: share of its rows' time that the power limit does not determine.
    """

    sheet: Sheet
    position: Column
    booster: BoosterBag
    informative: float = 1.0


@dataclass(frozen=True)
class Family:
    """Times of kernels of one family.

    Attributes:
        bases: engine -> analytical model.
        devices: the booster of each measured device.
        background: similarity added for every measured device.
    """

    bases: Mapping[str, BaseTime] = field(default_factory=dict)
    devices: tuple[DeviceBooster, ...] = ()
    background: float = 0.0

    @classmethod
    def fit(cls, parts: Sequence[KernelGroup], settings: Settings, seed: int) -> Self:
        """Fit analytical models to all devices together, then a booster for each device.

        Args:
            parts: measured kernels of each device.
            settings: settings of the fit.
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
        """Log seconds of each kernel, shape (n,)."""
        table = group.table
        log_seconds = np.log(np.exp(self._log_base(table, group.engines)) - table.start_s)
        features = self.booster_features(table, group.engines)
        weighted = list(self._weighted(group))
        load_together(booster for booster, _ in weighted)
        for booster, weight in weighted:
            log_seconds = log_seconds + weight * booster.predict(features)
        seconds = _joined(np.exp(log_seconds), table.power_s) + table.start_s
        return np.asarray(np.log(np.maximum(seconds, table.least_s)))

    def correction_columns(self, group: KernelGroup, log_values: Column) -> Matrix:
        """Features in which few-shot corrections are linear, shape (n, columns).

        They are the family's first features, the time over the bound, the terms' shares in the
        analytical model, and how the ratio from each measured device differs from the one used.

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
        """Distance of a device's position from the nearest measured one; 0 for measured devices."""
        if self.measured(group.device):
            return 0.0
        return float(np.sqrt(min(self._squares(group), default=np.inf)))

    def measured(self, device: Device) -> bool:
        """Whether kernels of the family were measured on the device."""
        return self._own(device) is not None

    def engine(self, name: str) -> str:
        """The engine whose measurements represent this one: itself where it has any."""
        return next(engine for engine in (name, *ENGINES, *self.bases) if engine in self.bases)

    def _own(self, device: Device) -> DeviceBooster | None:
        key = sheet(device)
        return next((known for known in self.devices if same_sheet(known.sheet, key)), None)

    def _squares(self, group: KernelGroup) -> list[float]:
        asked = np.array(group.position)
        return [float(((known.position - asked) ** 2).sum()) for known in self.devices]

    def _weighted(self, group: KernelGroup) -> Iterator[tuple[BoosterBag, float]]:
        measured = self._own(group.device)
        if measured is not None and not self.background:
            yield measured.booster, 1.0
            return
        if not self.devices:
            return
        squares = np.array(self._squares(group))
        nearest = 0.0 if self.background else squares.min()
        informative = np.array([known.informative for known in self.devices])
        weights = (np.exp(nearest - squares) + self.background) * informative
        weights *= [OWN_WEIGHT if known is measured else 1.0 for known in self.devices]
        weights[weights < NEGLIGIBLE * weights.max()] = 0.0
        for known, weight in zip(self.devices, (weights / weights.sum()).tolist(), strict=True):
            if weight:
                yield known.booster, weight

    def booster_features(self, table: KernelTable, engines: Names) -> Matrix:
        """Features of the family plus one-hot columns for the engine."""
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
    """Huber loss of the log time, as an objective for the log ratio, with Gauss-Newton steps.

    Power-limited rows carry little information about the ratio, so their gradient is scaled by the
    derivative `_share`. Dropping them by a threshold would select rows by their noise.
    """

    def objective(ratio: Column, data: Any) -> tuple[Column, Column]:
        at_full_clock = base_s * np.exp(ratio)
        error = log_seconds - np.log(_joined(at_full_clock, power_s))
        share = _share(at_full_clock, power_s)
        slope = np.minimum(1.0, HUBER / np.maximum(np.abs(error), 1e-9))
        return -error * slope * share, share**2 * slope + 1e-3

    return objective


def _base(parts: Sequence[KernelGroup], engine: str) -> BaseTime:
    """The analytical model of one engine, fitted with equal weight per device."""
    of_engine = [part.take(part.engines == engine) for part in parts]
    thinned = [thin(part, BASE_ROWS) for part in of_engine if len(part)]
    return BaseTime.fit(
        KernelTable.concatenate([part.table for part in thinned]),
        np.concatenate([part.log_values for part in thinned]),
        np.concatenate([np.full(len(part), 1.0 / len(part)) for part in thinned]),
    )


def thin(rows: KernelGroup, count: int) -> KernelGroup:
    """At most `count` rows, drawn at random with a fixed seed."""
    if len(rows) <= count:
        return rows
    drawn = np.random.default_rng(0).choice(len(rows), count, replace=False)
    return rows.take(np.sort(drawn))


UNSEEN_ROWS, SEEN_ROWS = 2000, 5000
"""Rows per device used in calibration: on held-out devices, and on measured devices."""
HELD_OUT_SHARE: Final = 0.25
"""Share of each device's sites held out for intervals on measured devices."""
_NEAR, FAR = 0.4 / 0.1**0.5, 0.8 / 0.1**0.5
"""Residuals grow in proportion to distance + `_NEAR` up to the distance `FAR` and are constant
beyond. Chosen on matrix products of H200, B200, GB200 and GB300, each held out in turn."""


class Expert(Protocol):
    """A predictor of the kernels of one family."""

    def log_values(self, group: KernelGroup) -> Column:
        """Log prediction for each of n kernels, shape (n,)."""
        ...

    def correction_columns(self, group: KernelGroup, log_values: Column) -> Matrix:
        """Features in which errors may be linear, shape (n, columns)."""
        ...

    def distance(self, group: KernelGroup) -> float:
        """Distance of the device from the nearest measured one; 0 for measured devices."""
        ...

    def measured(self, device: Device) -> bool:
        """Whether kernels of the family were measured on the device."""
        ...


Fit = Callable[[str, Sequence[KernelGroup]], Expert]
"""Family name and its measured kernels by device -> their expert."""


def interval_scale(distance: float, far: float = FAR) -> float:
    """Relative width of the interval on a device by its distance.

    Args:
        distance: from the nearest measured device.
        far: distance beyond which residuals no longer grow.
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

    Residuals on held-out devices are divided by `interval_scale`. Also returned are the shares of
    the squared residual common to all kernels of a family on a device, which do not average out in
    a sum: on measured devices, and on others.

    Args:
        families: family -> measured kernels of each device.
        fit: fits the expert of a family.
        seed: selects the held-out sites.
        far: as in `interval_scale`.
        prior: weight of the pooled bounds in each family's bounds, in held-out devices.
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


def _shrunk(quantiles: LogQuantiles, devices: Mapping[str, int], prior: float) -> LogQuantiles:
    """Bounds per family, as root mean squares of the family's and the pooled bounds.

    Args:
        quantiles: symmetric bounds.
        devices: family -> held-out devices, the weight of its own bounds.
        prior: weight of the pooled bounds.
    """
    _, pooled = quantiles.bounds[POOLED]
    bounds = {POOLED: quantiles.bounds[POOLED]}
    for name, (_, high) in quantiles.bounds.items():
        if name != POOLED:
            square = (devices[name] * high**2 + prior * pooled**2) / (devices[name] + prior)
            bounds[name] = (-float(np.sqrt(square)), float(np.sqrt(square)))
    return LogQuantiles(bounds, quantiles.coverage)


def _inflation(devices: int) -> float:
    """Student quantile over the normal one: errors on few devices predict the next poorly.

    Residuals are taken around zero rather than a fitted mean, so no degree of freedom is lost.

    Args:
        devices: held-out devices of a family.
    """
    freedom = np.array([float(devices), np.inf])
    few, many = student_quantile(freedom, LEVEL)
    return float(few / many)


class _Residuals:
    """Residuals of several families, mirrored, because the sign on the next device is unknown."""

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
    """Residuals on sites held out on all devices."""
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
    """Residuals on each device from fits to the others, divided by the scale of its distance."""
    for place, part in enumerate(parts):
        others = [other for index, other in enumerate(parts) if index != place]
        if others:
            expert = fit(name, others)
            yield _residuals(expert, part) / interval_scale(expert.distance(part), far)


def _residuals(expert: Expert, part: KernelGroup) -> Column:
    return part.log_values - expert.log_values(part)


@dataclass(frozen=True)
class Sums:
    """Sums over the kernels of n queries, with their intervals.

    Errors of different families are independent except for their common share; errors of kernels
    within a family are fully correlated.

    Attributes:
        total: (n,) sums.
        by_class: (n, classes) the same by operator class.
        ends: low and high side -> (n, 2), half-widths in log units weighted by `total`: the sum of
            the common parts, and the sum of squares of the families' independent parts.
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
            rows: (k,) query of each kernel.
            classes: (k,) operator classes; -1 for none.
            values: (k,) values summed over the executions of each.
            ends: (k,) low and high ends of the values.
            common: share of the squared error that this family's kernels share with other families.
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


CORRECTION_ROWS: Final = 2000
"""Rows per device used to standardise the features of few-shot corrections."""


@dataclass(frozen=True)
class KernelExperts(StoredPredictor):
    """Base class of kernel predictors; a query is one kernel or a sum of several.

    Attributes:
        seed: random seed.
        calibrated: whether `fit` also calibrates intervals, on held-out devices and sites.
        families: family -> its expert.
        intervals: bounds of the residual by family, on measured and on other devices.
        common: shares of the squared residual that do not average out in sums, on both.
        known: devices of the training set.
        scales: family -> standardises the features of few-shot corrections.
        support: errors of kernels on adapted devices.
    """

    seed: int = field(default=0, metadata=SETTING)
    calibrated: bool = field(default=True, metadata=SETTING)
    families: Mapping[str, Expert] = field(default_factory=dict)
    intervals: Intervals | None = None
    common: tuple[float, float] = (1.0, 1.0)
    known: KnownDevices = field(default_factory=KnownDevices)
    scales: Mapping[str, Standardizer] = field(default_factory=dict)
    support: SupportGP = field(default_factory=SupportGP)
    prior_devices: ClassVar[float] = 0.0
    far: ClassVar[float] = FAR
    """`prior` and `far` of `calibrate`."""
    other_sources: ClassVar[float] = 0.0
    """Least log bounds, which cover timings by other programs."""
    metric: ClassVar[str] = "latency_ms"
    per_unit: ClassVar[float] = 1e3
    """Answer per unit of the experts' prediction: milliseconds per second."""

    @abstractmethod
    def fit_family(self, name: str, parts: Sequence[KernelGroup]) -> Expert:
        """The expert of a family.

        Args:
            name: of the family.
            parts: measured kernels of each device.
        """

    @abstractmethod
    def groups(self, queries: Sequence[Query]) -> Iterator[KernelGroup]:
        """The kernels of queries, grouped by family and device."""

    def expert(self, family: str) -> Expert:
        """The expert of a family.

        Raises:
            KeyError: no kernel of the family was measured.
        """
        return self.families[family]

    def measured(self, family: str, device: Device) -> bool:
        """Whether kernels of a family were measured on a device.

        Args:
            family: operation and number format, such as `gemm/bf16`; it may be unknown.
            device: any device.
        """
        expert = self.families.get(family)
        return expert is not None and expert.measured(device)

    def as_timed(self, table: KernelTable) -> KernelTable:
        """Training rows with the launch overhead of their timing method."""
        return table

    def trained(self, group: KernelGroup, weights: Column) -> Mask:
        """Which of k measured kernels with these weights are training rows, (k,)."""
        return weights > 0.0

    def fit(self, measurements: Measurements) -> Self:
        """Fit every family, and calibrate intervals on held-out devices and sites.

        Args:
            measurements: single kernels with the metric.
        """
        parts = self._parts(measurements)
        fitted = replace(
            self,
            families={name: self.fit_family(name, groups) for name, groups in parts.items()},
            intervals=None,
            known=KnownDevices.of([query.device for query in measurements.queries]),
            support=SupportGP(),
        )
        scales = {name: fitted._standardizer(name, groups) for name, groups in parts.items()}
        fitted = replace(fitted, scales=scales).with_ranges(parts)
        if not self.calibrated:
            return fitted
        intervals, common = calibrate(
            parts, self.fit_family, self.seed, self.prior_devices, self.far
        )
        return replace(fitted, intervals=intervals, common=common)

    def with_ranges(self, parts: Mapping[str, Sequence[KernelGroup]]) -> Self:
        """A copy with the ranges of its training rows, where the predictor stores any."""
        return self

    def _parts(self, measurements: Measurements) -> dict[str, list[KernelGroup]]:
        values, weights = measurements.values[self.metric], measurements.weights
        weights = np.ones(len(measurements)) if weights is None else weights
        parts: dict[str, list[KernelGroup]] = {}
        for group in self.groups(measurements.queries):
            kept = self.trained(group, weights[group.rows]) & (values[group.rows] > 0)
            measured = replace(group, log_values=self._logs(values, group)).take(kept)
            measured = replace(measured, table=self.as_timed(measured.table))
            if len(measured):
                parts.setdefault(group.family, []).append(measured)
        return parts

    def _logs(self, values: Column, group: KernelGroup) -> Column:
        """Log measured values of a group, in the unit of the experts."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.log(values[group.rows] / self.unit(group)))

    def unit(self, group: KernelGroup) -> float:
        """Answer about a kernel of the group for which its expert predicts 1."""
        return self.per_unit

    def _standardizer(self, name: str, parts: Sequence[KernelGroup]) -> Standardizer:
        thinned, expert = [thin(part, CORRECTION_ROWS) for part in parts], self.expert(name)
        columns = [expert.correction_columns(part, part.log_values) for part in thinned]
        return Standardizer.of(np.concatenate(columns))

    def adapt(self, measurements: Measurements) -> Self:
        """Correct the predictions on devices from a few kernels measured there."""
        n = len(measurements)
        errors, features = np.full(n, np.nan), np.zeros((n, self._width))
        strata = np.full(n, "", dtype="<U64")
        for group in self.groups(measurements.queries):
            logs, rows = self.expert(group.family).log_values(group), group.rows
            errors[rows] = self._logs(measurements.values[self.metric], group) - logs
            features[rows], strata[rows] = self._columns(group, logs), _strata(group)
        devices = [query.device for query in measurements.queries]
        support = self.support.updated(errors, devices, strata.tolist(), features, self.known)
        return replace(self, support=support)

    @property
    def _width(self) -> int:
        return max((len(scale.centre) for scale in self.scales.values()), default=1)

    def _columns(self, group: KernelGroup, logs: Column) -> Matrix:
        """Features of few-shot corrections, (k, columns); zero for a family without rows."""
        if group.family not in self.scales:
            return np.zeros((len(group), self._width))
        columns = self.expert(group.family).correction_columns(group, logs)
        return self.scales[group.family].apply(columns, self._width)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """The metric of each kernel, or of the sum of kernels, with its interval."""
        sums = self.sums(queries)
        values, ends = sums.total, sums.interval()
        return Predictions.of_metric(
            self.metric,
            values,
            ends if self.intervals else None,
            coverage=self.intervals.unseen.coverage if self.intervals else None,
            limits=self.limits_of(queries, sums),
            breakdowns_ms=[by_class(row) for row in sums.by_class],
        )

    def sums(self, queries: Sequence[Query]) -> Sums:
        """Sums over the kernels of each of n queries."""
        sums = Sums.empty(len(queries), len(OPERATOR_CLASSES))
        for group in self.groups(queries):
            values, low, high = self.answers_of(group)
            common = self.common[0 if self.measured(group.family, group.device) else 1]
            ends = low * group.counts, high * group.counts
            sums.add(group.rows, group.classes, values * group.counts, ends, common)
        return sums

    def answers_of(self, group: KernelGroup) -> tuple[Column, Column, Column]:
        """Value and interval of one execution of each of k kernels, each (k,)."""
        expert = self.expert(group.family)
        logs = expert.log_values(group)
        error, deviation = np.zeros(len(group)), np.full(len(group), np.nan)
        if self.support.of(group.device) is not None:
            columns, devices = self._columns(group, logs), [group.device] * len(group)
            error, deviation = self.support.correction(devices, _strata(group).tolist(), columns)
        least, most = self.bounds(group)
        values = np.clip(np.exp(logs + error) * self.unit(group), least, most)
        if self.intervals is None:
            return values, values, values
        strata = [group.family] * len(group)
        low, high = self.intervals.seen.around(values, strata)
        reach = np.exp(self.least_reach(group))
        low, high = np.minimum(low, values / reach), np.maximum(high, values * reach)
        if not self.measured(group.family, group.device):
            scale = interval_scale(expert.distance(group), self.far)
            wide = self.intervals.unseen.around(values, strata, scale)
            low, high = np.minimum(low, wide[0]), np.maximum(high, wide[1])
        low, high = self.support.intervals(values, deviation, low, high)
        return values, low, np.maximum(np.minimum(high, most), values)

    def least_reach(self, group: KernelGroup) -> Column | float:
        """Least half-widths of the intervals of k kernels in log units, (k,) or a scalar."""
        return self.other_sources

    def bounds(self, group: KernelGroup) -> tuple[Column, Column | float]:
        """Lower and upper bounds of any answer about k kernels."""
        return group.table.least_s * self.unit(group), np.inf

    def limits_of(self, queries: Sequence[Query], sums: Sums) -> list[tuple[Limit, ...]]:
        """Limits of n queries: what was not measured."""
        return [self.limits(query) for query in queries]

    @abstractmethod
    def limits(self, query: Query) -> tuple[Limit, ...]:
        """Limits of a query: what was not measured."""

    def adapted(self, device: Device) -> bool:
        """Whether the device was adapted to with enough measured rows."""
        return self.support.rows(device) >= ENOUGH_ROWS


def _strata(group: KernelGroup) -> Names:
    """Strata of few-shot corrections: families by engine."""
    return np.char.add(f"{group.family}/", group.engines)
