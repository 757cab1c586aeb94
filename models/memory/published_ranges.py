"""How far published set-ups lay from their predictions, and which questions they speak for.

A published table is one group: its rows share a script and a framework, so that each table counts
as one sample of what a new one would show (hierarchical conformal prediction, Lee, Barber and
Willett 2023, arXiv 2306.06342). Tables are few and deviate to one side each, so that a new one may
deviate to either: ranges are symmetric in the logarithm. Training and inference deviate differently
and have a width each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import InferenceSetup, Network, TrainingSetup
from forerun.features.memory.plan import MemoryPlan
from forerun.models.memory.domain import BEYOND, MEASURED_OPTIMIZERS, concerning, kind_of

Column = NDArray[np.float64]
Mask = NDArray[np.bool_]
COVERAGE: Final = 0.9
SEVERAL: Final = "several"
FEWEST_GROUPS: Final = 4
"""Tables from which on a stratum has a width of its own; below, all those of one device give it."""
FEWEST_FAMILIES: Final = 2
"""Families of networks of a kind from which on its rows speak for a further one. Chosen: with one,
what is common to the kind cannot be told from what is peculiar to the family."""


@dataclass(frozen=True, slots=True)
class SeenKind:
    """Calibration rows of one kind of network in one stratum.

    Attributes:
        families: how many architecture families.
        largest_mib: most that a plan of them reserves, MiB.
        options: what their set-ups used, as `options_of` names it.
    """

    families: int
    largest_mib: float
    options: frozenset[str]


@dataclass(frozen=True)
class PublishedRanges:
    """Widths by stratum, and what they rest on. Strata: `training`, `inference`, `several` devices.

    Attributes:
        widths: stratum -> |log(measured / predicted)| that the range holds.
        rows: stratum -> set-ups behind its width.
        sources: stratum -> sources behind its width.
        metrics: stratum -> metrics of memory that its own rows measured; of strata alone whose
            width rests on their own rows.
        kinds: `stratum/kind` -> rows of that kind.
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
        """Widths of n published rows.

        Group `part` says which rows are of one table; without it every row is a table. Groups
        `source` and `family` are counted, and are `part` where they are not given. Runs on several
        devices, and those of a phase with few tables, are calibrated on more: on all rows, and on
        all of one device.

        Args:
            measurements: queries and groups.
            residuals: metric -> n values of log(measured / predicted), NaN where not measured.
            plans: of the n queries.
        """
        absolute = _first_known(residuals, len(measurements))
        known = ~np.isnan(absolute)
        parts = measurements.groups.get("part", np.arange(len(absolute)).astype(np.str_))
        sources = measurements.groups.get("source", parts)
        families = measurements.groups.get("family", parts)
        strata = np.array([stratum_of(query) for query in measurements.queries], dtype=np.str_)
        alone = known & (strata != SEVERAL)
        widths, rows, counts, metrics = {}, {}, {}, {}
        for stratum in ("training", "inference", SEVERAL):
            mine = own = known & (strata == stratum)
            if len(np.unique(parts[own])) < FEWEST_GROUPS:
                mine = known if stratum == SEVERAL else alone
            else:
                metrics[stratum] = _measured(residuals, own)
            if len(np.unique(parts[mine])) >= FEWEST_GROUPS:
                widths[stratum] = group_width(absolute[mine], parts[mine])
                rows[stratum] = int(mine.sum())
                counts[stratum] = len(np.unique(sources[mine]))
        kinds = _kinds(measurements.queries, plans, strata, families, known)
        return cls(widths, rows, counts, metrics, kinds) if widths else cls()

    def why_silent(self, query: Query, plan: MemoryPlan) -> str | None:
        """Why calibration rows make no claim of coverage for a query; None where they do."""
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
        strange = sorted(options_of(query) - seen.options)
        return f"none of this kind with {strange[0]}" if strange else None

    def line(self, query: Query, why_silent: str | None) -> str:
        """What the range of a query rests on, in one sentence."""
        stratum = stratum_of(query)
        which = f"{stratum} " if stratum in self.metrics and stratum != SEVERAL else ""
        rows, sources = self.rows[stratum], self.sources[stratum]
        text = f"memory: the range was calibrated on {rows} published {which}set-ups"
        text += f" of {sources} sources"
        return text if why_silent is None else f"{text}, {why_silent}"

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists."""
        return {
            "widths": dict(self.widths),
            "rows": dict(self.rows),
            "sources": dict(self.sources),
            "metrics": {stratum: list(names) for stratum, names in self.metrics.items()},
            "kinds": {
                kind: [seen.families, seen.largest_mib, sorted(seen.options)]
                for kind, seen in self.kinds.items()
            },
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The ranges that `to_json` wrote."""
        return cls(
            {stratum: float(width) for stratum, width in content["widths"].items()},
            {stratum: int(count) for stratum, count in content["rows"].items()},
            {stratum: int(count) for stratum, count in content["sources"].items()},
            {stratum: tuple(names) for stratum, names in content["metrics"].items()},
            {
                kind: SeenKind(int(families), float(largest), frozenset(options))
                for kind, (families, largest, options) in content["kinds"].items()
            },
        )


def stratum_of(query: Query) -> str:
    """`several` devices, or the phase of a run on one."""
    network = query.workload
    assert isinstance(network, Network)
    setup = network.training
    if network.phase == "training" and setup is not None:
        shared = setup.data_parallel * setup.tensor_parallel * setup.pipeline_parallel
        if shared > 1:
            return SEVERAL
    return network.phase


def kind_of_published(plan: MemoryPlan) -> str:
    """As `kind_of`, but networks with convolutions and no attention are `convolutional`."""
    kind = kind_of(plan)
    return "convolutional" if kind == "mixed" and not plan.has_attention else kind


def options_of(query: Query) -> frozenset[str]:
    """Precision, runtime, and every option of the set-up that is not its default."""
    network = query.workload
    assert isinstance(network, Network)
    setup: TrainingSetup | InferenceSetup = network.inference or InferenceSetup()
    if network.phase == "training":
        setup = network.training or TrainingSetup()
    plain, found = type(setup)(), {network.precision, f"runtime {query.software.runtime}"}
    for name in (one.name for one in fields(setup)):
        value = getattr(setup, name)
        if value == getattr(plain, name) or (name == "optimizer" and value in MEASURED_OPTIMIZERS):
            continue
        found.add(f"{name} {value}" if isinstance(value, str) else name)
    return frozenset(found)


def group_width(residuals: Column, groups: NDArray[np.str_]) -> float:
    """Width that holds `COVERAGE` of the rows of a new group, as far as groups allow.

    Every group weighs the same however many rows it has. With k groups a quantile above k / (k + 1)
    is not known; the greatest residual takes its place.

    Args:
        residuals: n absolute values without NaN.
        groups: of each row.
    """
    names, place, count = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.argsort(residuals)
    weights = np.cumsum((1.0 / count[place])[order])
    reached = np.flatnonzero(weights >= COVERAGE * (len(names) + 1) - 1e-9)
    return float(residuals[order][reached[0] if len(reached) else -1])


def _first_known(residuals: Mapping[str, Column], n: int) -> Column:
    """|residual| of n rows by the first metric that was measured, NaN where none was."""
    found = np.full(n, np.nan)
    for column in residuals.values():
        found = np.where(np.isnan(found), np.abs(column), found)
    return found


def _measured(residuals: Mapping[str, Column], rows: Mask) -> tuple[str, ...]:
    """Metrics with a residual in any of these rows."""
    return tuple(name for name, column in residuals.items() if np.isfinite(column[rows]).any())


def _kinds(
    queries: Sequence[Query],
    plans: Sequence[MemoryPlan],
    strata: NDArray[np.str_],
    families: NDArray[np.str_],
    known: Mask,
) -> dict[str, SeenKind]:
    kinds = np.array([kind_of_published(plan) for plan in plans], dtype=np.str_)
    keys = np.char.add(np.char.add(strata, "/"), kinds)
    found = {}
    for key in np.unique(keys[known]):
        rows = np.flatnonzero(known & (keys == key)).tolist()
        found[str(key)] = SeenKind(
            len(np.unique(families[rows])),
            max(plans[row].reserved for row in rows),
            frozenset().union(*(options_of(concerning(queries[row])) for row in rows)),
        )
    return found
