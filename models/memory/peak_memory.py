"""Predicts peak memory of inference and training: allocator, library workspaces and device context.

An analytical plan (`forerun.features.memory.plan`) gives the memory of the allocator. For training,
an affine map from the plan to the device-level peak and boosters of its residuals are fitted. The
boosters apply to measured kinds of networks (`forerun.models.memory.fitted_peaks`), and their
contribution is capped at that of the largest training network. Intervals outside that domain, and
all intervals of inference, are engineering ranges without nominal coverage.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from forerun.data.columns import Column, Mask
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.features.memory.liveness import execution
from forerun.features.memory.plan import MemoryPlan, cublas_workspace_mib, memory_plans
from forerun.models.adaptation.shrunk_scalar import ShrunkScalars
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import LogQuantiles, out_of_fold
from forerun.models.domain.feature_range import Sheet, same_sheet, sheet
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.limit import Limit
from forerun.models.memory.fitted_peaks import (
    AffineMap,
    FittedPeaks,
    MemoryDomain,
    assumptions,
    booster_features,
    concerning,
    inert_notes,
    kind_of,
)
from forerun.models.prediction import Predictions
from forerun.models.predictor import SETTING

PEAK, RESERVED, ALLOCATED = "peak_memory_mib", "reserved_memory_mib", "allocated_memory_mib"
AT_LEAST = "peak_memory_above_mib"
"""Column of `Measurements.values`: lower bound of the peak of an out-of-memory run, MiB."""

CONTEXT_MIB = 800.0
CONTEXT_LOW_MIB = 250.0
CONTEXT_HIGH_MIB = 1800.0
"""CUDA context, loaded kernels and library workspaces in inference, MiB: default, low and high.
Contexts alone are reported at 250 to 600 MiB depending on the generation, with kernels loaded on
demand. The least memory of any training job on an A100 is 1,443 MiB, and timm models with less than
1,000 MiB of tensors took 1,618 to 2,039 MiB on top of them (GPUMemNet, arXiv 2602.17817); inference
loads fewer kernels and should take less. The default is the geometric mean of 450 and 1,443."""

INFERENCE = AffineMap(1.0, 0.0, 0.0, 0.0, CONTEXT_MIB)
TRAINING = AffineMap(1.02, 1.2, 0.3, 280.0, 1450.0)
"""Map before `fit`: that of GPUMemNet's runs, rounded."""
SLACK_HIGH = 1.40
ALLOCATED_HIGH = 1.3
"""Upper ends over the plan, applied to transient memory only: weights, optimizer states and caches,
which last for the whole run, are exact."""
TRAINING_LOW, TRAINING_HIGH = 0.9, 1.3
TEXT_HIGH = 1.15
"""Upper end over the plan for networks without convolutions, which need no library workspaces."""

ADAPTED_SPREAD_MIB = 300.0
ADAPTED_ROWS = 3
"""Half-width of the memory outside the allocator after adaptation, MiB, and the support rows it
requires. For the timm jobs in GPUMemNet that memory varies by -150 to +270 MiB about its median (5
to 95 %)."""

FOLDS = 10
SIZES_MIB = (2000.0, 5000.0, 10000.0)

NO_INFERENCE_PEAKS = "no inference memory was measured for it"
NO_TRAINING_PEAKS = "this predictor was fitted without training peaks"
ELSEWHERE = Limit(
    "training was measured only on another device; a few measurements on this one would help", PEAK
)


@dataclass(frozen=True)
class Memory(StoredPredictor):
    """Device-level and allocator-level peaks on a GPU; `high` of a fitted peak is its p95.

    Attributes:
        context_mib: memory outside the allocator in inference, MiB, for any network.
        shares: few-shot corrections of the peak, MiB, by device and phase.
        training: affine map from a plan to the device-level peak in training.
        residuals: kind of network -> boosters of log(measured / mapped); empty before `fit`.
        quantiles: conformal quantiles of residuals on held-out families; None before `fit`.
        domain: domain of the training rows.
        sheets: spec sheets of the devices in the training set.
        seed: seed of boosters and folds.
    """

    context_mib: float = field(default=CONTEXT_MIB, metadata=SETTING)
    shares: ShrunkScalars = field(default_factory=ShrunkScalars)
    training: AffineMap = TRAINING
    residuals: Mapping[str, BoosterBag] = field(default_factory=dict)
    quantiles: LogQuantiles | None = None
    sheets: tuple[Sheet, ...] = ()
    seed: int = field(default=0, metadata=SETTING)
    domain: MemoryDomain = field(default_factory=MemoryDomain)
    name: ClassVar[str] = "memory"
    metrics: ClassVar[tuple[str, ...]] = (PEAK, RESERVED, ALLOCATED)

    def answers(self, query: Query) -> bool:
        """Whether the query is a network on a GPU, given by its forward graph."""
        workload = query.workload
        if not isinstance(workload, Network) or query.device.kind != "gpu":
            return False
        return not workload.graph.training

    def fit(self, measurements: Measurements) -> Self:
        """Fit the map, boosters and conformal quantiles to rows of the phase `training`.

        Args:
            measurements: rows with `peak_memory_mib`. Rows with only `peak_memory_above_mib` are
                right-censored: they have weight only where the fit is below that bound. Groups
                `family`, where given, are held out for the quantiles.
        """
        rows = measurements.take(
            np.array([_phase(q) == "training" and self.answers(q) for q in measurements.queries])
        )
        rows = rows.take(~np.isnan(rows.column(PEAK)) | ~np.isnan(rows.column(AT_LEAST)))
        if not len(rows):
            return self
        measured, at_least = rows.column(PEAK), rows.column(AT_LEAST)
        plans = plans_of(rows.queries)
        known = np.flatnonzero(~np.isnan(measured))
        families = rows.group("family")

        def predict_held_out(held: Mask) -> Column:
            held_families = np.isin(families, families[known[held]])
            training = np.flatnonzero(~held_families).tolist()
            fitted = FittedPeaks.of(
                [rows.queries[i] for i in training],
                [plans[i] for i in training],
                measured[training],
                at_least[training],
                self.seed,
            )
            return np.log(fitted.peaks([plans[i] for i in known[held].tolist()]))

        [predicted] = out_of_fold(families[known], predict_held_out, folds=FOLDS, seed=self.seed)
        strata = np.array([_stratum(plans[i]) for i in known.tolist()])
        fit = FittedPeaks.of(rows.queries, plans, measured, at_least, self.seed)
        return replace(
            self,
            training=fit.map,
            residuals=fit.residuals,
            domain=fit.domain,
            quantiles=LogQuantiles.of(np.log(measured[known]) - predicted, strata),
            sheets=tuple(sorted({sheet(q.device) for q in rows.queries})),
            shares=ShrunkScalars(),
        )

    def adapt(self, measurements: Measurements) -> Self:
        """Learn corrections of the peak by device and phase from rows with `peak_memory_mib`."""
        queries = measurements.queries
        beyond = measurements.column(PEAK) - self._peaks(queries, plans_of(queries))
        devices = [q.device for q in queries]
        return replace(
            self, shares=self.shares.updated(beyond, devices, [_phase(q) for q in queries])
        )

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Peaks from mapped plans plus the device's correction, with intervals and breakdowns."""
        return self.predict_planned(queries, plans_of(queries))

    def predict_planned(self, queries: Sequence[Query], plans: Sequence[MemoryPlan]) -> Predictions:
        """`predict` for n queries whose plans are already computed.

        Args:
            queries: n queries.
            plans: `plans_of` of them.
        """
        notes = [inert_notes(query) for query in queries]
        queries = [concerning(query) for query in queries]
        shift = self.shares.correction([q.device for q in queries], [_phase(q) for q in queries])
        mapped = self._peaks(queries, plans)
        # Library workspaces are inside the allocator; the affine map does not use them.
        libraries = np.array([cublas_workspace_mib(q.network, q.device) for q in queries])
        reserved = np.array([plan.reserved for plan in plans]) + libraries
        peak = np.maximum(mapped + shift, reserved)
        outside = [self._why_outside(*pair) for pair in zip(queries, plans, strict=True)]
        low, high = self._range(queries, plans, peak, outside)
        live = np.array([plan.live for plan in plans]) + libraries
        lasting = np.array([min(plan.lasting, plan.live) for plan in plans]) + libraries
        share = np.array([np.nan if why else 0.9 for why in outside])
        # What is allocated is part of what is reserved, and this of what the device shows.
        most = np.minimum(lasting + SLACK_HIGH * (reserved - lasting), high)
        return Predictions(
            {PEAK: peak, RESERVED: reserved, ALLOCATED: live},
            {PEAK: low, RESERVED: live, ALLOCATED: 0.9 * live},
            {
                PEAK: high,
                RESERVED: most,
                ALLOCATED: np.minimum(lasting + ALLOCATED_HIGH * (live - lasting), most),
            },
            {PEAK: None if any(outside) else 0.9, RESERVED: None, ALLOCATED: None},
            [
                self._limits(*row) + lines
                for *row, lines in zip(queries, low, outside, notes, strict=True)
            ],
            breakdowns_mib=[
                self._breakdown(query, plan, whole)
                for query, plan, whole in zip(queries, plans, peak, strict=True)
            ],
            row_coverage={PEAK: share},
        )

    def _map(self, query: Query) -> AffineMap:
        if _phase(query) == "training":
            return self.training
        return self._inference

    @cached_property
    def _inference(self) -> AffineMap:
        return replace(INFERENCE, context=self.context_mib)

    def _peaks(self, queries: Sequence[Query], plans: Sequence[MemoryPlan]) -> Column:
        mapped = np.array([self._map(q).peak(p) for q, p in zip(queries, plans, strict=True)])
        trained = np.array([_phase(q) == "training" for q in queries], dtype=np.bool_)
        if self.residuals and trained.any():
            fitted = FittedPeaks(self.training, self.residuals, self.domain)
            rows = np.flatnonzero(trained).tolist()
            mapped[trained] = fitted.peaks([plans[row] for row in rows])
        return mapped

    def _why_outside(self, query: Query, plan: MemoryPlan) -> str | None:
        """Why the interval is not calibrated; None for a calibrated one."""
        if _phase(query) == "inference":
            return NO_INFERENCE_PEAKS
        if self.quantiles is None:
            return NO_TRAINING_PEAKS
        known = self.domain.ranges.get(kind_of(plan))
        features = booster_features([plan], () if known is None else known.names)
        return self.domain.why_outside(query, plan, features[0])

    def _range(
        self,
        queries: Sequence[Query],
        plans: Sequence[MemoryPlan],
        peak: Column,
        outside: Sequence[str | None],
    ) -> tuple[Column, Column]:
        low, high = TRAINING_LOW * peak, TRAINING_HIGH * peak
        inside = [row for row, why in enumerate(outside) if why is None]
        if self.quantiles is not None and inside:
            strata = [_stratum(plans[row]) for row in inside]
            low[inside], high[inside] = self.quantiles.around(peak[inside], strata)
        for row, (query, plan) in enumerate(zip(queries, plans, strict=True)):
            if _phase(query) == "inference":
                low[row], high[row] = self._inference_range(query, plan, peak[row])
            elif self._on_another_device(query):
                # The memory outside the allocator is only known for the training device.
                lower = low[row] - max(0.0, self.training.own(plan) - CONTEXT_LOW_MIB)
                low[row] = max(lower, min(low[row], plan.live + CONTEXT_LOW_MIB))
            if _phase(query) != "inference" and outside[row] and not plan.has_convolutions:
                moving = plan.reserved - min(plan.lasting, plan.reserved)
                outside_allocator = max(peak[row] - plan.reserved, CONTEXT_HIGH_MIB)
                high[row] = plan.reserved + (TEXT_HIGH - 1.0) * moving + outside_allocator
        return np.minimum(low, peak), np.maximum(high, peak)

    def _inference_range(self, query: Query, plan: MemoryPlan, peak: float) -> tuple[float, float]:
        least, most = self.own_range(query, peak - plan.reserved)
        lasting = min(plan.lasting, plan.reserved)
        slack = SLACK_HIGH * (plan.reserved - lasting)
        return plan.live + least, lasting + slack + most

    def own_range(self, query: Query, own_mib: float) -> tuple[float, float]:
        """Lower and upper bound of the memory outside the allocator in inference, MiB.

        Args:
            query: a query about inference.
            own_mib: its estimate, MiB.
        """
        if self.shares.rows(query.device) >= ADAPTED_ROWS:
            return max(own_mib - ADAPTED_SPREAD_MIB, 0.0), own_mib + ADAPTED_SPREAD_MIB
        return max(min(own_mib, CONTEXT_LOW_MIB), 0.0), max(own_mib, CONTEXT_HIGH_MIB)

    def _breakdown(self, query: Query, plan: MemoryPlan, peak: float) -> Mapping[str, float]:
        parts = dict(plan.parts)
        affine = self._map(query)
        parts["workspace"] = affine.workspace(plan)
        parts["context"] = affine.own(plan)
        parts["slack"] = peak - sum(parts.values())
        return parts

    def _limits(self, query: Query, least_mib: float, outside: str | None) -> tuple[Limit, ...]:
        limits = list(refusals(query, least_mib))
        if outside is not None:
            limits.append(Limit(f"engineering estimate: {outside}", PEAK))
        elif self._on_another_device(query):
            limits.append(ELSEWHERE)
        return (*limits, *assumptions(query))

    def _on_another_device(self, query: Query) -> bool:
        """Whether the device is neither in the training set nor adapted to."""
        if self.shares.rows(query.device):
            return False
        key = sheet(query.device) if query.device.has_sheet else None
        return key is None or not any(same_sheet(known, key) for known in self.sheets)


def refusals(query: Query, least_mib: float) -> tuple[Limit, ...]:
    """A refusal of a run that cannot fit into the device's memory; empty if it may fit.

    Args:
        query: a query on that device.
        least_mib: lower end of the interval of the device-level peak, MiB.
    """
    memory_gib = query.device.memory_gib
    if memory_gib is None or least_mib <= memory_gib * 1024.0:
        return ()
    message = f"at least {least_mib:,.0f} MiB, the device has {memory_gib:g} GiB"
    return (Limit(message, PEAK, "refusal"),)


def _stratum(plan: MemoryPlan) -> str:
    kind = "spatial" if plan.convolutions > 0 else "other"
    return f"{kind}/{int(np.searchsorted(SIZES_MIB, plan.reserved))}"


def plans_of(queries: Sequence[Query]) -> list[MemoryPlan]:
    """The memory plan of each query about a network."""
    return memory_plans([(concerning(q).network, execution(q.software)) for q in queries])


def _phase(query: Query) -> str:
    return query.workload.phase if isinstance(query.workload, Network) else ""
