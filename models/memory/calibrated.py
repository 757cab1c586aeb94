"""Adds intervals from published setups to `Memory`, for queries outside its domain.

`Memory` predicts from an analytical plan, with intervals calibrated on training of perceptrons and
vision networks on one GPU. Queries in that domain keep them. All other queries get intervals from
set-ups published by others (`PublishedRanges`). Their coverage is nominal where the metric was
measured in published setups of the same kind of network, with the same options and of similar
size. Otherwise the interval is the union of both and has no nominal coverage.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, Final, Self

import numpy as np

from forerun.data.columns import Column, Mask, Names, rows_by
from forerun.data.level import LEVEL
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import InferenceSetup, TrainingSetup
from forerun.features.memory.plan import MemoryPlan
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import conformal_quantile
from forerun.models.limit import Limit
from forerun.models.memory.fitted_peaks import (
    BEYOND,
    MEASURED_OPTIMIZERS,
    assumptions,
    concerning,
    inert_notes,
    kind_of,
)
from forerun.models.memory.peak_memory import PEAK, RESERVED, Memory, plans_of, refusals
from forerun.models.prediction import Predictions
from forerun.models.predictor import SETTING, Predictor

SEVERAL: Final = "several"
FEWEST_GROUPS: Final = 4
"""Tables from which a stratum gets its own width; with fewer, it uses the width of all
single-device tables."""
FEWEST_FAMILIES: Final = 2
"""Families of a network kind from which its rows calibrate queries about another family. Chosen by
hand: with one family, effects of kind and family cannot be separated."""


@dataclass(frozen=True, slots=True)
class SeenKind:
    """Calibration rows of one kind of network in one stratum.

    Attributes:
        families: number of architecture families.
        largest_mib: largest reserved memory among their plans, MiB.
        options: options of their set-ups, as named by `options_of`.
    """

    families: int
    largest_mib: float
    options: frozenset[str]


@dataclass(frozen=True)
class PublishedRanges:
    """Half-widths of intervals by stratum (`training`, `inference`, `several` devices).

    The rows of a published table share a script and a framework, so each table is one group
    (hierarchical conformal prediction, Lee, Barber and Willett 2023, arXiv 2306.06342). There are
    few tables, and the residuals within a table mostly have one sign, while those of a new table
    may have either, so intervals are symmetric in log space. The finite-sample correction counts
    tables; with fewer than nine, the width is the largest residual and the coverage below `LEVEL`.
    Training and inference have separate widths.

    Attributes:
        widths: stratum -> quantile of |log(measured / predicted)|.
        rows: stratum -> number of set-ups behind the width.
        sources: stratum -> number of sources of these set-ups.
        metrics: stratum -> memory metrics measured in it; only for strata calibrated on their own
            rows.
        kinds: `stratum/kind` -> calibration rows of that kind.
    """

    widths: Mapping[str, float] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[str, int] = field(default_factory=dict)
    metrics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kinds: Mapping[str, SeenKind] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        measurements: Measurements,
        residuals: Mapping[str, Column],
        plans: Sequence[MemoryPlan],
    ) -> Self:
        """Calibrate the widths on n published rows.

        A stratum with too few tables borrows rows: runs on several devices use all rows, a phase
        uses all single-device rows.

        Args:
            measurements: queries and groups. The group `part` names the table of a row; without it
                each row is a table. The groups `source` and `family` default to `part`.
            residuals: metric -> n values of log(measured / predicted), NaN where not measured.
            plans: plans of the n queries.
        """
        absolute = _first_known(residuals, len(measurements))
        known = ~np.isnan(absolute)
        parts = measurements.group("part")
        sources = measurements.groups.get("source", parts)
        families = measurements.groups.get("family", parts)
        strata = np.array([stratum_of(query) for query in measurements.queries], dtype=np.str_)
        alone = known & (strata != SEVERAL)
        widths, rows, counts, metrics = {}, {}, {}, {}
        for stratum in ("training", "inference", SEVERAL):
            used = members = known & (strata == stratum)
            if len(np.unique(parts[members])) < FEWEST_GROUPS:
                used = known if stratum == SEVERAL else alone
            else:
                metrics[stratum] = _measured(residuals, members)
            if len(np.unique(parts[used])) >= FEWEST_GROUPS:
                widths[stratum] = conformal_quantile(absolute[used], LEVEL, parts[used])
                rows[stratum] = int(used.sum())
                counts[stratum] = len(np.unique(sources[used]))
        kinds = _kinds(measurements.queries, plans, strata, families, known)
        return cls(widths, rows, counts, metrics, kinds) if widths else cls()

    def why_silent(self, query: Query, plan: MemoryPlan) -> str | None:
        """Why a query is outside the domain of the calibration rows; None if it is inside."""
        stratum = stratum_of(query)
        seen = self.kinds.get(f"{stratum}/{kind_of_published(plan)}")
        if stratum not in self.metrics:
            return "few of them on several devices" if stratum == SEVERAL else f"few of {stratum}"
        if seen is None:
            return "none of this kind"
        if seen.families < FEWEST_FAMILIES:
            return "few of this kind"
        if plan.reserved > BEYOND * seen.largest_mib:
            return f"the largest of this kind reserves {seen.largest_mib:,.0f} MiB"
        unseen = sorted(options_of(query) - seen.options)
        return f"none of this kind with {unseen[0]}" if unseen else None

    def calibrated_on(self, query: Query, why_silent: str | None) -> str:
        """A sentence that states what the interval of a query was calibrated on."""
        stratum = stratum_of(query)
        which = f"{stratum} " if stratum in self.metrics and stratum != SEVERAL else ""
        rows, sources = self.rows[stratum], self.sources[stratum]
        text = f"the interval was calibrated on {rows} published {which}setups"
        text += f" of {sources} sources"
        return text if why_silent is None else f"{text}, {why_silent}"


def stratum_of(query: Query) -> str:
    """Stratum of a query: `several` for runs on several devices, otherwise the phase."""
    network = query.network
    setup = network.training
    if network.phase == "training" and setup is not None:
        shared = setup.data_parallel * setup.tensor_parallel * setup.pipeline_parallel
        if shared > 1:
            return SEVERAL
    return network.phase


def kind_of_published(plan: MemoryPlan) -> str:
    """`kind_of`, except that networks with convolutions and no attention are `convolutional`."""
    kind = kind_of(plan)
    return "convolutional" if kind == "mixed" and not plan.has_attention else kind


def options_of(query: Query) -> frozenset[str]:
    """Precision, runtime, and the options of the set-up that differ from the defaults."""
    network = query.network
    setup: TrainingSetup | InferenceSetup = network.inference or InferenceSetup()
    if network.phase == "training":
        setup = network.training or TrainingSetup()
    plain, options = type(setup)(), {network.precision, f"runtime {query.software.runtime}"}
    for name in (option.name for option in fields(setup)):
        value = getattr(setup, name)
        if value == getattr(plain, name) or (name == "optimizer" and value in MEASURED_OPTIMIZERS):
            continue
        options.add(f"{name} {value}" if isinstance(value, str) else name)
    return frozenset(options)


def _first_known(residuals: Mapping[str, Column], n: int) -> Column:
    """|residual| of n rows in the first measured metric; NaN where none was measured."""
    first = np.full(n, np.nan)
    for column in residuals.values():
        first = np.where(np.isnan(first), np.abs(column), first)
    return first


def _measured(residuals: Mapping[str, Column], rows: Mask) -> tuple[str, ...]:
    """Metrics with a residual in any of these rows."""
    return tuple(name for name, column in residuals.items() if np.isfinite(column[rows]).any())


def _kinds(
    queries: Sequence[Query],
    plans: Sequence[MemoryPlan],
    strata: Names,
    families: Names,
    known: Mask,
) -> dict[str, SeenKind]:
    """`stratum/kind` -> calibration rows of that kind."""
    kinds = [kind_of_published(plan) for plan in plans]
    by_kind = {}
    for key, rows in rows_by(f"{s}/{kind}" for s, kind in zip(strata, kinds, strict=True)).items():
        members = rows[known[rows]].tolist()
        if not members:
            continue
        by_kind[key] = SeenKind(
            len(np.unique(families[members])),
            max(plans[row].reserved for row in members),
            frozenset().union(*(options_of(concerning(queries[row])) for row in members)),
        )
    return by_kind


CONTEXT = "; memory outside the allocator is an engineering estimate"


@dataclass(frozen=True)
class CalibratedMemory(StoredPredictor):
    """`Memory` with intervals from published setups where its own are not calibrated.

    Attributes:
        base: predicts values and breakdowns, and intervals in its own domain.
        ranges: intervals from published setups; empty before `fit`.
        name: name in artifacts.
    """

    base: Memory = field(default_factory=Memory, metadata=SETTING)
    ranges: PublishedRanges = field(default_factory=PublishedRanges)
    name: ClassVar[str] = "calibrated_memory"

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of `Memory`."""
        return self.base.metrics

    def answers(self, query: Query) -> bool:
        """Whether `base` answers the query."""
        return self.base.answers(query)

    def with_parts(self, parts: Mapping[str, Predictor]) -> Self:
        """The predictor with another `base`; its ranges are kept."""
        base = parts[Memory.name]
        assert isinstance(base, Memory)
        return replace(self, base=base)

    def fit(self, measurements: Measurements) -> Self:
        """Calibrate the intervals on published rows; `base` is not changed.

        Args:
            measurements: rows with at least one of the metrics, and the groups of
                `PublishedRanges.of`.
        """
        if not len(measurements):
            return replace(self, ranges=PublishedRanges())
        plans = plans_of(measurements.queries)
        answered = self.base.predict_planned(measurements.queries, plans)
        residuals = {
            metric: np.log(measurements.values[metric] / answered.values[metric])
            for metric in self.metrics
            if metric in measurements.values
        }
        return replace(self, ranges=PublishedRanges.of(measurements, residuals, plans))

    def adapt(self, measurements: Measurements) -> Self:
        """Adapt `base` to a device; intervals from published setups stay."""
        return replace(self, base=self.base.adapt(measurements))

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Predictions of `base`, with intervals from published setups outside its domain."""
        plans = plans_of(queries)
        base = self.base.predict_planned(queries, plans)
        if not self.ranges.widths:
            return base
        low = {metric: column.copy() for metric, column in base.low.items()}
        high = {metric: column.copy() for metric, column in base.high.items()}
        share = {metric: np.full(len(queries), np.nan) for metric in self.metrics}
        share[PEAK] = base.row_coverage[PEAK].copy()
        limits = list(base.limits)
        for row in np.flatnonzero(np.isnan(share[PEAK])).tolist():
            query, plan = concerning(queries[row]), plans[row]
            why = self.ranges.why_silent(query, plan)
            for metric, (least, most) in self._range(query, plan, base, row).items():
                if why is not None:
                    least = min(least, base.low[metric][row])
                    most = max(most, base.high[metric][row])
                elif metric in self._measured(query):
                    share[metric][row] = LEVEL
                low[metric][row], high[metric][row] = least, most
            limits[row] = (*self._limits(query, why, low[PEAK][row]), *inert_notes(queries[row]))
        coverage = {
            name: None if np.isnan(widths).any() else LEVEL for name, widths in share.items()
        }
        return replace(
            base, low=low, high=high, limits=limits, coverage=coverage, row_coverage=share
        )

    def _measured(self, query: Query) -> tuple[str, ...]:
        return self.ranges.metrics.get(stratum_of(query), ())

    def _range(
        self, query: Query, plan: MemoryPlan, base: Predictions, row: int
    ) -> Mapping[str, tuple[float, float]]:
        """Metric -> interval from published setups.

        No published set-up of inference measured memory outside the allocator, so the interval of
        the peak also covers the engineering range of `Memory` for it.
        """
        factor = float(np.exp(self.ranges.widths[stratum_of(query)]))
        values = {metric: float(base.values[metric][row]) for metric in self.metrics}
        ranges = {metric: (value / factor, value * factor) for metric, value in values.items()}
        if stratum_of(query) == "inference" and PEAK not in self._measured(query):
            reserved, (least, most) = values[RESERVED], ranges[PEAK]
            own_least, own_most = self.base.own_range(query, values[PEAK] - plan.reserved)
            least = min(least, reserved / factor + own_least)
            ranges[PEAK] = (least, max(most, reserved * factor + own_most))
        return ranges

    def _limits(self, query: Query, why: str | None, least_mib: float) -> tuple[Limit, ...]:
        """Limits of `base`, plus what the interval was calibrated on."""
        calibrated_on = self.ranges.calibrated_on(query, why)
        calibrated = why is None and PEAK in self._measured(query)
        if why is None and not calibrated:
            calibrated_on += CONTEXT
        basis = Limit(calibrated_on, PEAK, "note" if calibrated else "outside")
        return (*refusals(query, least_mib), basis, *assumptions(query))
