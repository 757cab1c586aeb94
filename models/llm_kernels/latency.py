"""Times of kernels of language models on data-centre GPUs, with intervals and adaptation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Self

import numpy as np

from forerun.data.columns import Column, Matrix, Names
from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel
from forerun.features.llm_kernels.attention import DECODE_FEATURES, PREFILL_FEATURES
from forerun.features.llm_kernels.collectives import COLLECTIVE_FEATURES
from forerun.features.llm_kernels.elementwise import ELEMENTWISE_FEATURES
from forerun.features.llm_kernels.experts import EXPERTS_FEATURES
from forerun.features.llm_kernels.families import (
    KernelGroup,
    family_of,
    kernel_groups,
    llm_kernel_of,
)
from forerun.features.llm_kernels.gemm import GEMM_FEATURES
from forerun.features.llm_kernels.table import KernelTable
from forerun.features.operators.kinds import CLASS_OF_NAME
from forerun.models.adaptation.support_gp import ENOUGH_ROWS, Standardizer, SupportGP
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import Intervals
from forerun.models.domain.feature_range import FeatureRange, KnownDevices
from forerun.models.estimator import SETTING
from forerun.models.limit import LATENCY, Limit
from forerun.models.llm_kernels.calibration import calibrate, interval_scale
from forerun.models.llm_kernels.family_model import FamilyModel, FamilyRows, thin
from forerun.models.llm_kernels.product_range import in_range, product_ranges
from forerun.models.prediction import Predictions

CORRECTION_ROWS: Final = 2000
"""Rows of each device by which features of few-shot corrections are standardised."""


@dataclass(frozen=True)
class LlmKernels(StoredPredictor):
    """Latency of kernels of language models.

    Attributes:
        seed: random seed.
        trees: boosting rounds of the booster of one family of matrix products on one device.
        other_trees: the same of other families.
        calibrated: whether `fit` also calibrates intervals, on devices and sizes that it holds out.
        families: name of a family -> closed forms and boosters.
        intervals: bounds of the residual by family, on devices of the training set and on others.
        sizes: family of matrix products -> range of the logarithms of m, n and k.
        known: devices of the training set.
        scales: family -> standardises the features of few-shot corrections.
        support: errors on devices that were adapted to.
    """

    seed: int = field(default=0, metadata=SETTING)
    trees: int = field(default=100, metadata=SETTING)
    other_trees: int = field(default=42, metadata=SETTING)
    calibrated: bool = field(default=True, metadata=SETTING)
    families: Mapping[str, FamilyModel] = field(default_factory=dict)
    intervals: Intervals | None = None
    sizes: Mapping[str, FeatureRange] = field(default_factory=dict)
    known: KnownDevices = field(default_factory=KnownDevices)
    scales: Mapping[str, Standardizer] = field(default_factory=dict)
    support: SupportGP = field(default_factory=SupportGP)
    name: ClassVar[str] = "llm_kernels"
    metrics: ClassVar[tuple[str, ...]] = ("latency_ms",)
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {
        "features of gemm": GEMM_FEATURES,
        "features of elementwise": ELEMENTWISE_FEATURES,
        "features of decode": DECODE_FEATURES,
        "features of prefill": PREFILL_FEATURES,
        "features of experts": EXPERTS_FEATURES,
        "features of collectives": COLLECTIVE_FEATURES,
    }

    def answers(self, query: Query) -> bool:
        """Whether the family of the kernel was fitted and the device has a spec sheet.

        An operator of a network is only answered where its family was measured on the device, at
        sizes within the range of the measurements: other predictors answer the rest.
        """
        kernel = llm_kernel_of(query.workload)
        if kernel is None or not query.device.has_sheet:
            return False
        family = family_of(kernel.kernel)
        if query.workload.kind == "llm_kernel":
            return family in self.families
        return self.measured(family, query.device) and in_range(kernel.kernel, self.sizes)

    def measured(self, family: str, device: Device) -> bool:
        """Whether kernels of a family were measured on a device.

        Args:
            family: operation and number format, such as `gemm/bf16`; it may be unknown.
            device: any device.
        """
        own = self.families.get(family)
        return own is not None and own.measured(device)

    def fit(self, measurements: Measurements) -> Self:
        """Fit every family, and calibrate intervals on held-out devices and sizes.

        Args:
            measurements: kernels with `latency_ms`.
        """
        parts: dict[str, list[FamilyRows]] = {}
        log_seconds = np.log(measurements.values["latency_ms"] / 1e3)
        for group in kernel_groups(measurements.queries):
            rows = FamilyRows(group.device, group.engines, group.table, log_seconds[group.rows])
            parts.setdefault(group.family, []).append(rows)
        trees = {
            name: self.trees if name.startswith("gemm/") else self.other_trees for name in parts
        }
        families = {
            name: FamilyModel.fit(own, trees=trees[name], seed=self.seed)
            for name, own in parts.items()
        }
        return replace(
            self,
            families=families,
            intervals=calibrate(parts, trees, self.seed) if self.calibrated else None,
            sizes=product_ranges(
                {n: [part.table.features for part in p] for n, p in parts.items()}
            ),
            known=KnownDevices.of([query.device for query in measurements.queries]),
            scales={name: _standardizer(families[name], own) for name, own in parts.items()},
            support=SupportGP(),
        )

    def adapt(self, measurements: Measurements) -> Self:
        """Correct the times on devices by a few kernels measured there."""
        n, width = len(measurements), max(len(one.centre) for one in self.scales.values())
        errors, features = np.empty(n), np.zeros((n, width))
        strata = np.full(n, "", dtype="<U64")
        for group in kernel_groups(measurements.queries):
            seconds = self._unadapted(group)
            measured = measurements.values["latency_ms"][group.rows] / 1e3
            errors[group.rows] = np.log(measured / seconds)
            features[group.rows] = self._correction_features(group, seconds)
            strata[group.rows] = _strata(group)
        devices = [query.device for query in measurements.queries]
        support = self.support.updated(errors, devices, strata.tolist(), features, self.known)
        return replace(self, support=support)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Latency of each kernel in milliseconds, with the interval of its family and device."""
        values, low, high = np.empty((3, len(queries)))
        limits: list[tuple[Limit, ...]] = [()] * len(queries)
        for group in kernel_groups(queries):
            rows = group.rows
            values[rows], low[rows], high[rows] = self._answers_ms(group)
            own = self._limits(group.family, group.device)
            for row in rows.tolist():
                limits[row] = own
        ends = (low, high) if self.intervals else None
        coverage = self.intervals.unseen.coverage if self.intervals else None
        breakdowns = [_breakdown(q, ms) for q, ms in zip(queries, values.tolist(), strict=True)]
        return Predictions.of_metric(
            "latency_ms",
            values,
            ends,
            coverage=coverage,
            limits=limits,
            breakdowns_ms=breakdowns,
        )

    def seconds(self, family: str, table: KernelTable, engines: Names, device: Device) -> Column:
        """Time of each of n kernels of one family on one device, shape (n,), seconds.

        Args:
            family: one of `families`.
            table: the kernels.
            engines: (n,) names of engines.
            device: where they run.
        """
        group = KernelGroup(family, device, np.arange(len(table)), engines, table)
        unadapted = self._unadapted(group)
        error, _ = self._corrections(group, unadapted)
        return np.asarray(np.maximum(unadapted * np.exp(error), table.least_s))

    def _unadapted(self, group: KernelGroup) -> Column:
        return self.families[group.family].seconds(group.table, group.engines, group.device)

    def _answers_ms(self, group: KernelGroup) -> tuple[Column, Column, Column]:
        """Value and ends of the interval of each kernel, each (k,), milliseconds."""
        seconds = self._unadapted(group)
        device, count = group.device, len(group.rows)
        error, deviation = self._corrections(group, seconds)
        values = np.maximum(seconds * np.exp(error), group.table.least_s) * 1e3
        if self.intervals is None:
            return values, values, values
        family = self.families[group.family]
        strata = [group.family] * count
        if family.measured(device):
            low, high = self.intervals.seen.around(values, strata)
        else:
            scale = interval_scale(family.distance(device))
            low, high = self.intervals.unseen.around(values, strata, scale)
        return (values, *self.support.intervals(values, deviation, low, high))

    def _correction_features(self, group: KernelGroup, seconds: Column) -> Matrix:
        model, scale = self.families[group.family], self.scales[group.family]
        columns = model.correction_columns(group.table, group.engines, seconds)
        return scale.apply(columns, max(len(one.centre) for one in self.scales.values()))

    def _corrections(self, group: KernelGroup, seconds: Column) -> tuple[Column, Column]:
        """Mean and standard deviation of the log error of each kernel, as `SupportGP` has them."""
        count = len(seconds)
        if self.support.of(group.device) is None:
            return np.zeros(count), np.full(count, np.nan)
        features = self._correction_features(group, seconds)
        return self.support.correction([group.device] * count, _strata(group).tolist(), features)

    def _limits(self, family: str, device: Device) -> tuple[Limit, ...]:
        """What of a family on a device was not measured."""
        if self.measured(family, device) or self.support.rows(device) >= ENOUGH_ROWS:
            return ()
        line = f"{family} was not measured on this device; the interval is that of held-out devices"
        return (Limit(line, LATENCY, severity="transfer"),)


def _breakdown(query: Query, latency_ms: float) -> dict[str, float]:
    """Class of an operator of a network -> its time; empty for kernels of language models."""
    workload = query.workload
    if not isinstance(workload, Kernel):
        return {}
    return {CLASS_OF_NAME[workload.operator.kind]: latency_ms}


def _standardizer(model: FamilyModel, parts: Sequence[FamilyRows]) -> Standardizer:
    thinned = [thin(part, CORRECTION_ROWS) for part in parts]
    columns = [model.correction_columns(p.table, p.engines, np.exp(p.log_seconds)) for p in thinned]
    return Standardizer.of(np.concatenate(columns))


def _strata(group: KernelGroup) -> Names:
    """Strata of few-shot corrections: families by engine."""
    return np.char.add(f"{group.family}/", group.engines)
