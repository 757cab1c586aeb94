"""Prediction intervals of memory, calibrated on published set-ups, and the domain of these.

The rows of a published table share a script and a framework, so each table is one group
(hierarchical conformal prediction, Lee, Barber and Willett 2023, arXiv 2306.06342). Tables are few
and the residuals of one table have mostly one sign, while those of a new table may have either:
intervals are therefore symmetric in log space. The finite-sample correction counts tables; with
fewer than nine, the width is the largest residual and the coverage below `LEVEL`. Training and
inference have separate widths.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, Self

import numpy as np

from forerun.data.columns import Column, Mask, Names, rows_by
from forerun.data.level import LEVEL
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import InferenceSetup, TrainingSetup
from forerun.features.memory.plan import MemoryPlan
from forerun.models.conformal import conformal_quantile
from forerun.models.memory.domain import BEYOND, MEASURED_OPTIMIZERS, concerning, kind_of

SEVERAL: Final = "several"
FEWEST_GROUPS: Final = 4
"""Tables from which on a stratum has a width of its own; with fewer, the width is that of all
tables with one device."""
FEWEST_FAMILIES: Final = 2
"""Families of networks of a kind from which on its rows calibrate queries about another family.
Chosen: with one family, effects of the kind and of the family cannot be separated."""


@dataclass(frozen=True, slots=True)
class SeenKind:
    """Calibration rows of one kind of network in one stratum.

    Attributes:
        families: number of architecture families.
        largest_mib: largest reserved memory in their plans, MiB.
        options: options of their set-ups, as named by `options_of`.
    """

    families: int
    largest_mib: float
    options: frozenset[str]


@dataclass(frozen=True)
class PublishedRanges:
    """Half-widths of intervals by stratum (`training`, `inference`, `several` devices).

    Attributes:
        widths: stratum -> quantile of |log(measured / predicted)|.
        rows: stratum -> number of set-ups that the width was calibrated on.
        sources: stratum -> number of sources of these set-ups.
        metrics: stratum -> metrics of memory that were measured in it; only for strata whose
            width was calibrated on their own rows.
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

        A stratum with too few tables is calibrated on other rows as well: runs on several devices
        on all rows, and a phase on all rows with one device.

        Args:
            measurements: queries and groups. The group `part` is the table of a row; without it
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
            used = own = known & (strata == stratum)
            if len(np.unique(parts[own])) < FEWEST_GROUPS:
                used = known if stratum == SEVERAL else alone
            else:
                metrics[stratum] = _measured(residuals, own)
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
        """The sentence that says what the interval of a query was calibrated on."""
        stratum = stratum_of(query)
        which = f"{stratum} " if stratum in self.metrics and stratum != SEVERAL else ""
        rows, sources = self.rows[stratum], self.sources[stratum]
        text = f"the range was calibrated on {rows} published {which}set-ups"
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
    """Precision, runtime, and the options of the set-up that differ from their defaults."""
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
    """|residual| of n rows in the first metric that was measured, NaN where none was."""
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
        own = rows[known[rows]].tolist()
        if not own:
            continue
        by_kind[key] = SeenKind(
            len(np.unique(families[own])),
            max(plans[row].reserved for row in own),
            frozenset().union(*(options_of(concerning(queries[row])) for row in own)),
        )
    return by_kind
