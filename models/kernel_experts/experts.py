"""Predictors of kernels by an expert of each family: fit, few-shot adaptation, intervals, sums."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Protocol, Self, runtime_checkable

import numpy as np

from forerun.data.columns import Column, Mask, Matrix, Names
from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.llm_kernels.table import KernelGroup, KernelTable
from forerun.features.operators.kinds import OPERATOR_CLASSES, by_class
from forerun.models.adaptation.support_gp import ENOUGH_ROWS, Standardizer, SupportGP
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import Intervals
from forerun.models.domain.feature_range import KnownDevices
from forerun.models.estimator import SETTING
from forerun.models.kernel_experts.calibration import FAR, Expert, Sums, calibrate, interval_scale
from forerun.models.kernel_experts.family import thin
from forerun.models.limit import Limit
from forerun.models.prediction import Predictions

CORRECTION_ROWS: Final = 2000
"""Rows of each device by which features of few-shot corrections are standardised."""


@runtime_checkable
class KnowsKernels(Protocol):
    """A predictor that knows where families of kernels were measured."""

    @property
    def families(self) -> Mapping[str, Expert]:
        """Name of each family that was measured on any device, such as `gemm/bf16`."""

    def measured(self, family: str, device: Device) -> bool:
        """Whether kernels of a family were measured on a device."""


@dataclass(frozen=True)
class KernelExperts(StoredPredictor):
    """What predictors of kernels have in common; a query is one kernel, or the sum of several.

    Attributes:
        seed: random seed.
        calibrated: whether `fit` also calibrates intervals, on devices and sites that it holds out.
        families: name of a family -> its expert.
        intervals: bounds of the residual by family, on measured devices and on others.
        common: shares of the squared residual that do not average out in sums, on both.
        known: devices of the training set.
        scales: family -> standardises the features of few-shot corrections.
        support: errors of kernels on devices that were adapted to.
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
    """Least log bounds on measured devices, within which timings of other programs lie."""
    metric: ClassVar[str] = "latency_ms"
    per_unit: ClassVar[float] = 1e3
    """What is answered over what the experts predict: milliseconds of a second."""

    @abstractmethod
    def fit_family(self, name: str, parts: Sequence[KernelGroup]) -> Expert:
        """The expert of a family.

        Args:
            name: of the family.
            parts: measured kernels of each device.
        """

    @abstractmethod
    def groups(self, queries: Sequence[Query]) -> Iterator[KernelGroup]:
        """The kernels of queries, by family and device."""

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
        own = self.families.get(family)
        return own is not None and own.measured(device)

    def as_timed(self, table: KernelTable) -> KernelTable:
        """Training rows, with the launch that their way of timing has."""
        return table

    def trained(self, group: KernelGroup, weights: Column) -> Mask:
        """Which of k measured kernels are training rows, (k,), given their weights."""
        return weights > 0.0

    def fit(self, measurements: Measurements) -> Self:
        """Fit every family, and calibrate intervals on held-out devices and sites.

        Args:
            measurements: single kernels with the metric.
        """
        parts = self._parts(measurements)
        fitted = replace(
            self,
            families={name: self.fit_family(name, own) for name, own in parts.items()},
            intervals=None,
            known=KnownDevices.of([query.device for query in measurements.queries]),
            support=SupportGP(),
        )
        scales = {name: fitted._standardizer(name, own) for name, own in parts.items()}
        fitted = replace(fitted, scales=scales).with_ranges(parts)
        if not self.calibrated:
            return fitted
        intervals, common = calibrate(
            parts, self.fit_family, self.seed, self.prior_devices, self.far
        )
        return replace(fitted, intervals=intervals, common=common)

    def with_ranges(self, parts: Mapping[str, Sequence[KernelGroup]]) -> Self:
        """The predictor with the ranges of its training rows, where it has any."""
        return self

    def _parts(self, measurements: Measurements) -> dict[str, list[KernelGroup]]:
        values, weights = measurements.values[self.metric], measurements.weights
        weights = np.ones(len(measurements)) if weights is None else weights
        parts: dict[str, list[KernelGroup]] = {}
        for group in self.groups(measurements.queries):
            kept = self.trained(group, weights[group.rows]) & (values[group.rows] > 0)
            own = replace(group, log_values=self._logs(values, group)).take(kept)
            own = replace(own, table=self.as_timed(own.table))
            if len(own):
                parts.setdefault(group.family, []).append(own)
        return parts

    def _logs(self, values: Column, group: KernelGroup) -> Column:
        """Logarithms of measured values of a group, in the unit of the experts."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.log(values[group.rows] / self.unit(group)))

    def unit(self, group: KernelGroup) -> float:
        """What an answer about kernels of a group is, where its expert predicts 1."""
        return self.per_unit

    def _standardizer(self, name: str, parts: Sequence[KernelGroup]) -> Standardizer:
        thinned, expert = [thin(part, CORRECTION_ROWS) for part in parts], self.expert(name)
        columns = [expert.correction_columns(part, part.log_values) for part in thinned]
        return Standardizer.of(np.concatenate(columns))

    def adapt(self, measurements: Measurements) -> Self:
        """Correct the answers on devices by a few kernels measured there."""
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
        return max((len(one.centre) for one in self.scales.values()), default=1)

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
        """Value and ends of the interval of one run of each of k kernels, each (k,)."""
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
        reach = np.exp(self.other_sources)
        low, high = np.minimum(low, values / reach), np.maximum(high, values * reach)
        if not self.measured(group.family, group.device):
            scale = interval_scale(expert.distance(group), self.far)
            wide = self.intervals.unseen.around(values, strata, scale)
            low, high = np.minimum(low, wide[0]), np.maximum(high, wide[1])
        low, high = self.support.intervals(values, deviation, low, high)
        return values, low, np.maximum(np.minimum(high, most), values)

    def bounds(self, group: KernelGroup) -> tuple[Column, Column | float]:
        """What no answer about k kernels is below, and above."""
        return group.table.least_s * self.unit(group), np.inf

    def limits_of(self, queries: Sequence[Query], sums: Sums) -> list[tuple[Limit, ...]]:
        """What about each of n queries was not measured."""
        return [self.limits(query) for query in queries]

    @abstractmethod
    def limits(self, query: Query) -> tuple[Limit, ...]:
        """What about a query was not measured."""

    def adapted(self, device: Device) -> bool:
        """Whether rows enough were measured on a device that was adapted to."""
        return self.support.rows(device) >= ENOUGH_ROWS


def _strata(group: KernelGroup) -> Names:
    """Strata of few-shot corrections: families by engine."""
    return np.char.add(f"{group.family}/", group.engines)
