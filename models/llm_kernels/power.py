"""Power of kernels of language models in a loop, as a share of the design power.

It is a predictor of its own: the law of `forerun.models.power` is about operators of networks at
the clocks of other boards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self

import numpy as np

from forerun.data.columns import Column, Matrix, Names
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.llm_kernels.families import (
    KernelGroup,
    family_of,
    kernel_groups,
    llm_kernel_of,
)
from forerun.models.adaptation.support_gp import ENOUGH_ROWS, Standardizer, SupportGP
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import Intervals, LogQuantiles, held_out_folds
from forerun.models.domain.feature_range import FeatureRange, KnownDevices
from forerun.models.estimator import SETTING
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.gradient_boosting.lean import coarse
from forerun.models.limit import POWER, Limit
from forerun.models.llm_kernels.product_range import in_range, product_ranges
from forerun.models.prediction import Predictions

PARAMETERS: Final[Mapping[str, Any]] = {
    "objective": "l1",
    "num_leaves": 15,
    "learning_rate": 0.15,
    "min_data_in_leaf": 30,
    "feature_fraction": 0.7,
    "lambda_l2": 1.0,
}
FOLDS: Final = 4
"""Folds of rows, for the intervals on devices of the training set."""


@dataclass(frozen=True)
class KernelPower(StoredPredictor):
    """Mean power of a GPU while one kernel is repeated.

    Attributes:
        seed: random seed.
        trees: boosting rounds of the booster of one family.
        calibrated: whether `fit` also calibrates intervals, on devices and rows that it holds out.
        sizes: family of matrix products -> range of the logarithms of m, n and k.
        boosters: family -> booster of the logarithm of the share of the design power.
        scales: family -> standardises the features of few-shot corrections.
        intervals: bounds of the residual by family.
        known: devices of the training set.
        support: errors on devices that were adapted to.
    """

    seed: int = field(default=0, metadata=SETTING)
    trees: int = field(default=40, metadata=SETTING)
    calibrated: bool = field(default=True, metadata=SETTING)
    sizes: Mapping[str, FeatureRange] = field(default_factory=dict)
    boosters: Mapping[str, BoosterBag] = field(default_factory=dict)
    scales: Mapping[str, Standardizer] = field(default_factory=dict)
    intervals: Intervals | None = None
    known: KnownDevices = field(default_factory=KnownDevices)
    support: SupportGP = field(default_factory=SupportGP)
    name: ClassVar[str] = "kernel_power"
    metrics: ClassVar[tuple[str, ...]] = ("power_w",)

    def answers(self, query: Query) -> bool:
        """Whether the family of the kernel was fitted and the device has a design power.

        An operator of a network is only answered on a device of the training set, at sizes within
        the range of the measurements: other predictors answer the rest.
        """
        kernel, device = llm_kernel_of(query.workload), query.device
        if kernel is None or not device.has_sheet or device.tdp_w is None:
            return False
        if query.workload.kind == "llm_kernel":
            return family_of(kernel.kernel) in self.boosters
        return device in self.known and in_range(kernel.kernel, self.sizes)

    def fit(self, measurements: Measurements) -> Self:
        """Fit a booster to each family, and calibrate intervals on held-out devices and rows.

        Args:
            measurements: kernels with `power_w`, on devices with a design power.
        """
        watts = measurements.values["power_w"]
        families: dict[str, list[_Rows]] = {}
        for group in kernel_groups(measurements.queries):
            rows = _Rows(group.device.name, group.table.features, _shares(group, watts))
            families.setdefault(group.family, []).append(rows)
        parts = {name: _Rows.joined(own) for name, own in families.items()}
        fitted = replace(
            self,
            sizes=product_ranges({name: [own[1]] for name, own in parts.items()}),
            boosters={name: self._booster(*own) for name, own in parts.items()},
            intervals=None,
            known=KnownDevices.of([query.device for query in measurements.queries]),
            support=SupportGP(),
        )
        scales = {
            name: Standardizer.of(_columns(own[1], fitted.boosters[name].predict(own[1])))
            for name, own in parts.items()
        }
        intervals = self._calibrate(parts) if self.calibrated else None
        return replace(fitted, scales=scales, intervals=intervals)

    def adapt(self, measurements: Measurements) -> Self:
        """Correct the power on devices by a few kernels measured there, of fitted families."""
        measurements = measurements.take(
            np.array([*map(self.answers, measurements.queries)], dtype=np.bool_)
        )
        if not len(measurements):
            return self
        n, width = len(measurements), self._width()
        errors, features = np.empty(n), np.zeros((n, width))
        families = np.full(n, "", dtype="<U64")
        for group in kernel_groups(measurements.queries):
            log_shares = self.boosters[group.family].predict(group.table.features)
            errors[group.rows] = _shares(group, measurements.values["power_w"]) - log_shares
            features[group.rows] = self._features(group, log_shares)
            families[group.rows] = group.family
        devices = [query.device for query in measurements.queries]
        support = self.support.updated(errors, devices, families.tolist(), features, self.known)
        return replace(self, support=support)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Power of each kernel in watts, at most the design power."""
        values, low, high = np.empty((3, len(queries)))
        limits: list[tuple[Limit, ...]] = [()] * len(queries)
        for group in kernel_groups(queries):
            rows = group.rows
            values[rows], low[rows], high[rows] = self._answers_w(group)
            for row in rows.tolist():
                limits[row] = self._limits(queries[row])
        ends = (low, high) if self.intervals else None
        coverage = self.intervals.unseen.coverage if self.intervals else None
        return Predictions.of_metric("power_w", values, ends, coverage=coverage, limits=limits)

    def _answers_w(self, group: KernelGroup) -> tuple[Column, Column, Column]:
        """Value and ends of the interval of each kernel, each (k,), watts."""
        count, most = len(group.rows), float(group.device.tdp_w or 0.0)
        log_shares = self.boosters[group.family].predict(group.table.features)
        deviation = np.full(count, np.nan)
        strata, devices = [group.family] * count, [group.device] * count
        if self.support.of(group.device) is not None:
            features = self._features(group, log_shares)
            error, deviation = self.support.correction(devices, strata, features)
            log_shares = log_shares + error
        values = np.minimum(np.exp(log_shares), 1.0) * most
        if self.intervals is None:
            return values, values, values
        seen = np.full(count, group.device in self.known)
        low, high = self.intervals.around(values, strata, seen)
        low, high = self.support.intervals(values, deviation, low, high)
        return values, low, np.maximum(np.minimum(high, most), values)

    def _features(self, group: KernelGroup, log_shares: Column) -> Matrix:
        columns = _columns(group.table.features, log_shares)
        return self.scales[group.family].apply(columns, self._width())

    def _width(self) -> int:
        return max(len(one.centre) for one in self.scales.values())

    def _booster(self, devices: Names, features: Matrix, log_shares: Column) -> BoosterBag:
        """A booster in which each device has the same weight."""
        _, place, counts = np.unique(devices, return_inverse=True, return_counts=True)
        weights = len(devices) / len(counts) / counts[place]
        bag = BoosterBag.fit(
            features,
            log_shares,
            parameters=PARAMETERS,
            trees=self.trees,
            seeds=(self.seed,),
            weights=weights,
        )
        return BoosterBag(tuple(map(coarse, bag.texts)))

    def _calibrate(self, parts: Mapping[str, tuple[Names, Matrix, Column]]) -> Intervals:
        """Quantiles of the residuals by family, on held-out devices and on held-out rows."""
        unseen, seen, names = [], [], []
        for name, own in parts.items():
            rows = np.arange(len(own[0])).astype(str)
            unseen.append(own[2] - self._held_out(own, own[0], None))
            seen.append(own[2] - self._held_out(own, rows, FOLDS))
            names += [name] * len(rows)
        strata = np.array(names, dtype=np.str_)
        quantiles = (LogQuantiles.of(np.concatenate(r), strata) for r in (seen, unseen))
        return Intervals(*quantiles)

    def _held_out(
        self, rows: tuple[Names, Matrix, Column], groups: Names, folds: int | None
    ) -> Column:
        """Predicted logarithm of each row's share, of boosters fitted without its group."""
        predicted = np.full(len(groups), np.nan)
        for held in held_out_folds(groups, folds, self.seed):
            booster = self._booster(*(column[~held] for column in rows))
            predicted[held] = booster.predict(rows[1][held])
        return predicted

    def _limits(self, query: Query) -> tuple[Limit, ...]:
        if query.device in self.known or self.support.rows(query.device) >= ENOUGH_ROWS:
            return ()
        line = "the device is not in the training set; the interval is that of held-out devices"
        return (Limit(line, POWER, severity="transfer"),)


@dataclass(frozen=True, slots=True)
class _Rows:
    device: str
    features: Matrix
    log_shares: Column

    @staticmethod
    def joined(parts: Sequence["_Rows"]) -> tuple[Names, Matrix, Column]:
        """Device, features and logarithm of the share of n kernels."""
        names = np.repeat([part.device for part in parts], [len(p.log_shares) for p in parts])
        features = np.concatenate([part.features for part in parts])
        return names, features, np.concatenate([part.log_shares for part in parts])


def _shares(group: KernelGroup, watts: Column) -> Column:
    """Logarithm of the share of the design power of each kernel of a group."""
    return np.asarray(np.log(watts[group.rows] / (group.device.tdp_w or np.nan)))


def _columns(features: Matrix, log_shares: Column) -> Matrix:
    return np.column_stack([log_shares, features])
