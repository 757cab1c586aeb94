"""Prediction intervals of the power law, calibrated on held-out chips and held-out jobs.

The ends of an interval are the law with its waiting and its dynamic power a number of standard
deviations lower or higher. A run whose demand is far above the limit thus has a narrow interval,
because its power is close to the limit in either case. The number of standard deviations that
covers nine runs in ten is measured on held-out chips, which all have the same weight. As the chips
are few, it is multiplied by the ratio of the Student t to the normal quantile.

Domain of a training set of power: its devices, precisions, phases and operator classes.

Held-out groups for the calibration of the power law: chips, jobs, and chips with few rows.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from forerun.data.columns import Column, Mask
from forerun.data.device import Device
from forerun.data.level import HALF_WIDTH, LEVEL
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Diffusion, Kernel, Network
from forerun.features.operators.kinds import OPERATOR_CLASSES
from forerun.features.power.operator_features import gather_power
from forerun.models.adaptation.shrunk_scalar import ShrunkScalars
from forerun.models.conformal import (
    group_weights,
    held_out_folds,
    student_quantile,
    weighted_quantile,
)
from forerun.models.domain.feature_range import KnownDevices
from forerun.models.power.law import (
    EFFECTS,
    MOST_WAITING,
    Demand,
    PowerLaw,
    PowerRuns,
    are_kernels,
    limited_w,
    unlimited_w,
)


@dataclass(frozen=True)
class MeasuredRuns:
    """Categories that occur in a training set.

    Attributes:
        devices: all devices.
        operators: devices on which single operators were measured.
        networks: devices on which networks were measured.
        precisions: number formats of operators and networks.
        phases: phases of networks: `inference`, `training`.
        classes: operator classes of the single operators.
    """

    devices: KnownDevices = field(default_factory=KnownDevices)
    operators: KnownDevices = field(default_factory=KnownDevices)
    networks: KnownDevices = field(default_factory=KnownDevices)
    precisions: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()

    @classmethod
    def of(cls, queries: Sequence[Query]) -> "MeasuredRuns":
        """The categories that occur in these queries."""
        kernels = [q for q in queries if isinstance(q.workload, Kernel)]
        networks = [q for q in queries if is_network(q)]
        runs = [q.run for q in queries if not isinstance(q.workload, Diffusion)]
        classes = np.unique(gather_power(kernels).op_class) if kernels else ()
        return cls(
            KnownDevices.of([q.device for q in queries]),
            KnownDevices.of([q.device for q in kernels]),
            KnownDevices.of([q.device for q in networks]),
            tuple(sorted({run.precision for run in runs})),
            tuple(sorted({phase_of(q) for q in networks})),
            tuple(sorted(OPERATOR_CLASSES[c] for c in classes)),
        )


def is_network(query: Query) -> bool:
    """Whether the workload is a network of more than one operator."""
    return isinstance(query.workload, Network) and len(query.workload.graph) > 1


def phase_of(query: Query) -> str:
    """Phase of a network: `training` or `inference`."""
    workload = query.network
    return "training" if workload.graph.training else workload.phase


LEAST_SHARE, MOST_SHARE = 0.15, 1.05
"""Least and greatest end of an interval over the design power: a waiting device, and a short
overshoot of the limit."""
MEASURING: Final = 0.02
"""Standard deviation of measurements at the limit, in log space: averages of one operator in
several campaigns differ by 0.1 % in the median and 3.8 % in the mean (torch_op_energy)."""
DEVIATIONS: Final[Mapping[str, tuple[float, float]]] = {
    "unseen": (EFFECTS["waiting"], EFFECTS["dynamic"]),
    "adapted": (0.25, 0.15),
    "seen": (0.1, 0.1),
}
"""Knowledge of a device -> standard deviations of its waiting and dynamic power, in log space.

Those of adapted and seen devices are round figures, which the calibrated `reach` scales.
"""
ANYTHING: Final = 100.0
"""Reach, in standard deviations, that covers everything from waiting power to the limit: used
without held-out chips, as there is no estimate of the error on another chip."""
FARTHEST: Final = 50.0
"""Upper end of the bisection, in standard deviations."""
BISECTIONS: Final = 40
FEWEST: Final = 30
"""Held-out rows that a stratum needs for a quantile of its own."""


@dataclass(frozen=True)
class LawIntervals:
    """Half-widths of the intervals around the law, in standard deviations.

    Attributes:
        reach: stratum (`unseen/network`, `seen/operator`, ...) -> standard deviations.
    """

    reach: Mapping[str, float] = field(default_factory=dict)

    def ends(self, runs: PowerRuns, demand: Demand, known: Sequence[str]) -> tuple[Column, Column]:
        """Low and high of n runs, W, shapes (n,).

        Args:
            runs: n runs.
            demand: their demand by the law.
            known: for each run a key of `DEVIATIONS`, how well its device is known.
        """
        reach = np.array(
            [self._reach(k, s) for k, s in zip(known, runs.single, strict=True)], dtype=np.float64
        )
        return ends(runs, demand, known, reach)

    def _reach(self, known: str, single: bool) -> float:
        workload = "operator" if single else "network"
        for name in (f"{known}/{workload}", known, f"unseen/{workload}", "unseen"):
            if name in self.reach:
                return self.reach[name]
        return ANYTHING


def ends(
    runs: PowerRuns, demand: Demand, known: Sequence[str], reach: Column
) -> tuple[Column, Column]:
    """Power with both parts `reach` standard deviations lower and higher, W, shapes (n,).

    The ends are clipped to the range of what boards draw.
    """
    deviations = np.array([DEVIATIONS[key] for key in known]).reshape(-1, 2).T
    tdp = runs.load.tdp_w
    bounds = []
    for sign in (-1.0, 1.0):
        step = sign * reach
        moved = demand.times(*np.exp(step * deviations))
        moved = moved._replace(waiting_w=np.minimum(moved.waiting_w, MOST_WAITING * tdp))
        bounds.append(limited_w(runs, moved) * np.exp(step * MEASURING))
    least = np.minimum(demand.waiting_w, LEAST_SHARE * tdp)
    return np.maximum(bounds[0], least), np.minimum(bounds[1], MOST_SHARE * tdp)


@dataclass(frozen=True)
class HeldOut:
    """A held-out group of n runs, with the demand by a law fitted without that group.

    Attributes:
        runs: n runs.
        demand: their demand by that law.
        watts: (n,) measured power, W.
        known: how well that law knows their devices, a key of `DEVIATIONS`.
    """

    runs: PowerRuns
    demand: Demand
    watts: Column
    known: str

    def deviations(self) -> Column:
        """Least number of standard deviations whose interval covers each measurement, (n,)."""
        low, high = np.zeros(len(self.runs)), np.full(len(self.runs), FARTHEST)
        known = [self.known] * len(self.runs)
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            least, most = ends(self.runs, self.demand, known, middle)
            inside = (least <= self.watts) & (self.watts <= most)
            low, high = np.where(inside, low, middle), np.where(inside, middle, high)
        return high


def calibrated(parts: Sequence[HeldOut]) -> LawIntervals:
    """Half-widths that cover `LEVEL` of the held-out rows; each group has the same weight.

    Groups are few, so each quantile is multiplied by the Student t over the normal quantile; the
    degrees of freedom are the number of groups minus one. Groups are held-out chips, folds of jobs
    (whose number is fixed, because all jobs share the same few chips), and support sets of adapted
    chips: operators were measured on two chips, and with one degree of freedom intervals after
    adaptation would be wider than those without it.

    Args:
        parts: held-out groups.
    """
    reach = {}
    for known in sorted({part.known for part in parts}):
        groups = [part for part in parts if part.known == known]
        scores = np.concatenate([part.deviations() for part in groups])
        single = np.concatenate([part.runs.single for part in groups])
        group = np.repeat(np.arange(len(groups)), [len(part.runs) for part in groups])
        wider = float(student_quantile(max(len(groups) - 1, 1), LEVEL)) / HALF_WIDTH
        strata = {known: single | ~single, f"{known}/network": ~single, f"{known}/operator": single}
        for name, rows in strata.items():
            if name == known or rows.sum() >= FEWEST:
                weights = group_weights(group[rows])
                reach[name] = wider * weighted_quantile(scores[rows], weights, LEVEL)
    return LawIntervals(reach)


SHOTS, DRAWS = 20, 5
"""Size of the support set of a held-out chip, and number of random support sets."""
JOB_FOLDS: Final = 5


def held_out_runs(
    runs: PowerRuns, watts: Column, folds: Iterable[Mask], known: str
) -> Iterator[HeldOut]:
    """Groups of runs in turn, with a law fitted to all other runs.

    Args:
        runs: n training runs.
        watts: (n,) measured average power, W.
        folds: masks (n,) of the groups.
        known: how well that law knows the devices of a group, a key of `DEVIATIONS`.
    """
    for held in folds:
        law, own = PowerLaw().fit(runs.take(~held), watts[~held]), runs.take(held)
        yield HeldOut(own, law.demand(own), watts[held], known)


def adapted_chips(rows: Measurements, runs: PowerRuns, seed: int) -> Iterator[HeldOut]:
    """Operators on held-out chips, after adaptation to random support sets of `SHOTS` operators.

    Args:
        rows: n training rows with `power_w`.
        runs: the inputs of the law for the same rows.
        seed: selects the support sets.
    """
    random = np.random.default_rng(seed)
    watts = rows.values["power_w"]
    kernels = are_kernels(rows.queries)
    for chip in held_out_folds(runs.chips):
        own = kernels & chip
        if own.sum() <= SHOTS:
            continue
        law = PowerLaw().fit(runs.take(~chip), watts[~chip])
        for _ in range(DRAWS):
            order = random.permutation(np.flatnonzero(own))
            support = np.zeros(len(rows), dtype=np.bool_)
            support[order[:SHOTS]] = True
            yield _adapted(rows, runs, law, support, own & ~support)


def law_residuals(runs: PowerRuns, demand: Demand, watts: Column) -> Column:
    """Log of the dynamic demand behind a measured power over that of the law, shape (n,).

    Args:
        runs: n runs.
        demand: their demand by the law.
        watts: (n,) measured power, W.
    """
    residuals: Column = np.log(unlimited_w(runs, demand, watts) / demand.dynamic_w)
    return residuals


def kind_of(query: Query) -> str:
    """Stratum of the few-shot correction: the kind of a single operator, or `network`."""
    if isinstance(query.workload, Kernel):
        return query.workload.operator.kind
    graph = query.network.graph
    return graph.operators[0].kind if len(graph) == 1 else "network"


def _adapted(
    rows: Measurements, runs: PowerRuns, law: PowerLaw, support: Mask, held: Mask
) -> HeldOut:
    """The held-out rows, with the demand by the law adapted to the support rows."""
    watts = rows.values["power_w"]
    support_runs, held_runs = runs.take(support), runs.take(held)
    residuals = law_residuals(support_runs, law.demand(support_runs), watts[support])
    scalars = ShrunkScalars().updated(residuals, *correction_keys(rows.take(support).queries))
    factors = np.exp(scalars.correction(*correction_keys(rows.take(held).queries)))
    demand = law.demand(held_runs).times(np.ones(len(held_runs)), factors)
    return HeldOut(held_runs, demand, watts[held], "adapted")


def correction_keys(queries: Sequence[Query]) -> tuple[list[Device], list[str]]:
    """Device of each of n queries, and the stratum of its few-shot correction."""
    return [q.device for q in queries], [kind_of(q) for q in queries]
