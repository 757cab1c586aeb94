"""Predicts the average power of a GPU that runs operators in a loop, or trains or runs a network.

A mixed-effects model with few coefficients (`forerun.models.power.law`) is fitted to several GPUs
and applies to any GPU. For operators on devices with operators in the training set, boosters of
the dynamic power relative to that at the roofline are used; they are more accurate there and less
accurate elsewhere.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self

import numpy as np

from forerun.data.columns import Column, Mask
from forerun.data.device import Device
from forerun.data.level import HALF_WIDTH, LEVEL
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Diffusion, Kernel, Network
from forerun.features.operators.kinds import CLASS_OF_NAME, OPERATOR_CLASSES
from forerun.features.power.operator_features import POWER_FEATURES, PowerFeatures, gather_power
from forerun.models.adaptation.shrunk_scalar import ENOUGH_ROWS, ShrunkScalars
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import (
    LogQuantiles,
    group_weights,
    held_out_folds,
    out_of_fold,
    student_quantile,
    weighted_quantile,
)
from forerun.models.domain.feature_range import KnownDevices
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.limit import POWER, Limit
from forerun.models.power.law import (
    EFFECTS,
    MOST_WAITING,
    TERMS,
    Demand,
    PowerLaw,
    PowerRuns,
    are_kernels,
    limited_w,
    unlimited_w,
)
from forerun.models.prediction import Predictions
from forerun.models.predictor import SETTING


@dataclass(frozen=True)
class MeasuredRuns:
    """Categories that occur in a training set.

    Attributes:
        devices: all devices.
        operators: devices with measured single operators.
        networks: devices with measured networks.
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
"""Limits of an interval's ends as shares of the TDP: an idle device, and a short overshoot
of the limit."""
MEASURING: Final = 0.02
"""Standard deviation of measurements at the limit, in log space: averages of one operator in
several campaigns differ by 0.1 % in the median and 3.8 % in the mean (torch_op_energy)."""
DEVIATIONS: Final[Mapping[str, tuple[float, float]]] = {
    "unseen": (EFFECTS["waiting"], EFFECTS["dynamic"]),
    "adapted": (0.25, 0.15),
    "seen": (0.1, 0.1),
}
"""How well a device is known -> standard deviations of its idle and dynamic power, in log space.

Those of adapted and seen devices are round figures, which the calibrated `reach` scales.
"""
ANYTHING: Final = 100.0
"""Reach, in standard deviations, that covers everything from idle power to the limit. Used without
held-out chips, when the error on another chip cannot be estimated."""
FARTHEST: Final = 50.0
"""Upper end of the bisection, in standard deviations."""
BISECTIONS: Final = 40
FEWEST: Final = 30
"""Held-out rows from which a stratum gets its own quantile."""


@dataclass(frozen=True)
class LawIntervals:
    """Half-widths of the intervals around the power model, in standard deviations.

    The ends of an interval are the model with idle and dynamic power shifted by a number of
    standard deviations. A run with demand far above the limit thus has a narrow interval, because
    its power is close to the limit either way. The number that covers nine runs in ten is measured
    on held-out chips, all with the same weight. As chips are few, it is multiplied by the ratio of
    the Student t to the normal quantile.

    Attributes:
        reach: stratum (`unseen/network`, `seen/operator`, ...) -> standard deviations.
    """

    reach: Mapping[str, float] = field(default_factory=dict)

    def ends(self, runs: PowerRuns, demand: Demand, known: Sequence[str]) -> tuple[Column, Column]:
        """Lower and upper ends of n runs, W, shapes (n,).

        Args:
            runs: n runs.
            demand: their modelled demand.
            known: per run, how well its device is known, a key of `DEVIATIONS`.
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
    """Power with both parts shifted by `reach` standard deviations down and up, W, shapes (n,).

    The ends are clipped to what boards can draw.
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
    """A held-out group of n runs, with the demand from a model fitted without that group.

    Attributes:
        runs: n runs.
        demand: their demand from that model.
        watts: (n,) measured power, W.
        known: how well that model knows their devices, a key of `DEVIATIONS`.
    """

    runs: PowerRuns
    demand: Demand
    watts: Column
    known: str

    def deviations(self) -> Column:
        """Smallest number of standard deviations whose interval covers each measurement, (n,)."""
        low, high = np.zeros(len(self.runs)), np.full(len(self.runs), FARTHEST)
        known = [self.known] * len(self.runs)
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            least, most = ends(self.runs, self.demand, known, middle)
            inside = (least <= self.watts) & (self.watts <= most)
            low, high = np.where(inside, low, middle), np.where(inside, middle, high)
        return high


def calibrated(parts: Sequence[HeldOut]) -> LawIntervals:
    """Half-widths that cover `LEVEL` of the held-out rows, with equal weight per group.

    Groups are few, so each quantile is multiplied by the Student t over the normal quantile, with
    one degree of freedom less than groups. Groups are held-out chips, folds of jobs (whose number
    is fixed, because all jobs share the same few chips), and support sets of adapted chips:
    operators were measured on two chips, and with one degree of freedom intervals after adaptation
    would be wider than before.

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
    """Hold out groups in turn, with a model fitted to all other runs.

    Args:
        runs: n training runs.
        watts: (n,) measured average power, W.
        folds: masks (n,) of the groups.
        known: how well that model knows a group's devices, a key of `DEVIATIONS`.
    """
    for held in folds:
        law, held_runs = PowerLaw().fit(runs.take(~held), watts[~held]), runs.take(held)
        yield HeldOut(held_runs, law.demand(held_runs), watts[held], known)


def adapted_chips(rows: Measurements, runs: PowerRuns, seed: int) -> Iterator[HeldOut]:
    """Operators on held-out chips after adaptation to random support sets of `SHOTS` operators.

    Args:
        rows: n training rows with `power_w`.
        runs: the model's inputs for the same rows.
        seed: selects the support sets.
    """
    random = np.random.default_rng(seed)
    watts = rows.values["power_w"]
    kernels = are_kernels(rows.queries)
    for chip in held_out_folds(runs.chips):
        chip_kernels = kernels & chip
        if chip_kernels.sum() <= SHOTS:
            continue
        law = PowerLaw().fit(runs.take(~chip), watts[~chip])
        for _ in range(DRAWS):
            order = random.permutation(np.flatnonzero(chip_kernels))
            support = np.zeros(len(rows), dtype=np.bool_)
            support[order[:SHOTS]] = True
            yield _adapted(rows, runs, law, support, chip_kernels & ~support)


def law_residuals(runs: PowerRuns, demand: Demand, watts: Column) -> Column:
    """Log of the dynamic demand behind a measured power over the modelled one, shape (n,).

    Args:
        runs: n runs.
        demand: their modelled demand.
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
    """The held-out rows, with demand from the model adapted to the support rows."""
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


SETTINGS: Mapping[str, Any] = {
    "learning_rate": 0.15,
    "num_leaves": 31,
    "min_data_in_leaf": 10,
    "feature_fraction": 0.8,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "lambda_l2": 1.0,
    "objective": "l1",
}
LEAST_DYNAMIC = 0.02
"""Least dynamic power over design power, for kernels so short that the device is mostly idle."""

SHORT_MS = 0.02
STRATA = ("busy", "limit", "short", "short_limit")
"""Strata of residuals: kernels below and at the power limit, separately for those with a roofline
time below `SHORT_MS`."""
FOLDS = 5


def fit_boosters(rows: Measurements, seed: int, bag: int, trees: int) -> BoosterBag:
    """Boosters of log(dynamic power / dynamic power at the roofline).

    Args:
        rows: operators with `power_w`.
        seed: the first booster's seed is 100 times this, plus one.
        bag: number of boosters.
        trees: number of boosting rounds.
    """
    features = gather_power(rows.queries)
    floor = LEAST_DYNAMIC * (features.waiting_w + features.headroom_w)
    dynamic = np.maximum(rows.values["power_w"] - features.waiting_w, floor)
    seeds = range(seed * 100 + 1, seed * 100 + 1 + bag)
    target = np.log(dynamic / features.base_w)
    return BoosterBag.fit(features.matrix, target, parameters=SETTINGS, trees=trees, seeds=seeds)


def boosted_w(boosters: BoosterBag, features: PowerFeatures, correction: Column) -> Column:
    """Power of n operators, W, at most the design power; shape (n,).

    Args:
        boosters: boosters of `fit_boosters`.
        features: features of n operators.
        correction: (n,) few-shot correction of the log of the dynamic power.
    """
    dynamic = features.base_w * np.exp(boosters.predict(features.matrix) + correction)
    return np.asarray(features.waiting_w + np.minimum(dynamic, features.headroom_w))


def mean_boosted_w(boosters: BoosterBag, queries: Sequence[Query]) -> Column:
    """Power of n operators or networks, W: the mean over operators weighted by roofline time."""
    features = gather_power(queries)
    watts = boosted_w(boosters, features, np.zeros(len(features)))
    return features.mean_over_time(watts, len(queries))


def dynamic_residuals(features: PowerFeatures, predicted_w: Column, watts: Column) -> Column:
    """log(measured / predicted) of the dynamic power, shape (n,).

    Both powers are at least `LEAST_DYNAMIC` of the TDP.
    """
    floor = LEAST_DYNAMIC * (features.waiting_w + features.headroom_w)
    measured = np.maximum(watts - features.waiting_w, floor)
    residuals: Column = np.log(measured / np.maximum(predicted_w - features.waiting_w, floor))
    return residuals


def strata(features: PowerFeatures, watts: Column) -> list[str]:
    """Stratum of each of n kernels, one of `STRATA`.

    Residuals are smallest for kernels at the power limit and largest for short ones.
    """
    at_limit = watts > 0.9 * (features.waiting_w + features.headroom_w)
    codes = at_limit + 2 * (features.bound_ms < SHORT_MS).astype(np.intp)
    return [STRATA[code] for code in codes]


def held_out_shapes(rows: Measurements, seed: int, bag: int, trees: int) -> LogQuantiles:
    """Conformal quantiles of log(measured / predicted) on held-out operator shapes, by stratum.

    The finite-sample correction counts shapes, about a thousand, with equal weights.

    Args:
        rows: operators with `power_w` and the group `op_shape`.
        seed: determines folds and boosters.
        bag: number of boosters.
        trees: number of boosting rounds.
    """
    shapes = rows.groups["op_shape"]

    def predict(held: Mask) -> Column:
        boosters = fit_boosters(rows.take(~held), seed, bag, trees)
        features = gather_power(rows.take(held).queries)
        return boosted_w(boosters, features, np.zeros(len(features)))

    [watts] = out_of_fold(shapes, predict, folds=FOLDS, seed=seed)
    residuals = np.log(rows.values["power_w"]) - np.log(watts)
    names = np.array(strata(gather_power(rows.queries), watts))
    return LogQuantiles.of(residuals, names, groups=shapes)


@dataclass(frozen=True)
class OperatorPower(StoredPredictor):
    """Average power of operators and networks on GPUs.

    Attributes:
        seed: determines the boosters' seeds, folds and support sets.
        bag: number of boosters.
        trees: number of boosting rounds.
        calibrated: whether `fit` calibrates intervals.
        law: the fitted power model; None before `fit`.
        boosters: boosters for operators on the devices of `measured.operators`; None without such
            devices.
        intervals: intervals of the power model; None without calibration.
        operator_intervals: intervals of the boosters; None without calibration.
        measured: domain of the training set.
        scalars: few-shot corrections of adapted devices.
    """

    seed: int = field(default=0, metadata=SETTING)
    bag: int = field(default=1, metadata=SETTING)
    trees: int = field(default=40, metadata=SETTING)
    calibrated: bool = field(default=True, metadata=SETTING)
    law: PowerLaw | None = None
    boosters: BoosterBag | None = None
    intervals: LawIntervals | None = None
    operator_intervals: LogQuantiles | None = None
    measured: MeasuredRuns = field(default_factory=MeasuredRuns)
    scalars: ShrunkScalars = field(default_factory=ShrunkScalars)
    name: ClassVar[str] = "operator_power"
    metrics: ClassVar[tuple[str, ...]] = ("power_w",)
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {
        "features": POWER_FEATURES,
        "terms": tuple(TERMS),
    }

    def answers(self, query: Query) -> bool:
        """Whether, after `fit`, the query is about operators or networks on a GPU with a TDP."""
        device = query.device
        on_gpu = device.kind == "gpu" and device.tdp_w is not None
        return self.law is not None and on_gpu and query.has_bound

    def fit(self, measurements: Measurements) -> Self:
        """Fit the model to all rows and boosters to operators; calibrate on held-out groups.

        Args:
            measurements: operators, networks and diffusion models with `power_w` and the group
                `op_shape`: an operator with its shape, or a job. These groups are held out for
                intervals on devices in the training set, whole chips for other devices.
        """
        watts = measurements.values["power_w"]
        runs = PowerRuns.of(measurements.queries)
        kernels = measurements.take(are_kernels(measurements.queries))
        fitted = replace(
            self,
            law=PowerLaw().fit(runs, watts),
            boosters=fit_boosters(kernels, self.seed, self.bag, self.trees) if kernels else None,
            intervals=None,
            operator_intervals=None,
            measured=MeasuredRuns.of(measurements.queries),
            scalars=ShrunkScalars(),
        )
        if not self.calibrated:
            return fitted
        groups = measurements.groups["op_shape"]
        jobs = held_out_folds(groups, JOB_FOLDS, self.seed)
        parts = [
            *held_out_runs(runs, watts, held_out_folds(runs.chips), "unseen"),
            *held_out_runs(runs, watts, jobs, "seen"),
            *adapted_chips(measurements, runs, self.seed),
        ]
        shapes = held_out_shapes(kernels, self.seed, self.bag, self.trees) if kernels else None
        return replace(fitted, intervals=calibrated(parts), operator_intervals=shapes)

    def adapt(self, measurements: Measurements) -> Self:
        """Learn shrunk factors of dynamic power by device and kind from rows with `power_w`."""
        assert self.law is not None
        queries, watts = measurements.queries, measurements.values["power_w"]
        runs = PowerRuns.of(queries)
        residuals = law_residuals(runs, self.law.demand(runs), watts)
        boosted = self._boosted(queries)
        if boosted.any():
            assert self.boosters is not None
            features = gather_power(measurements.take(boosted).queries)
            predicted = boosted_w(self.boosters, features, np.zeros(len(features)))
            residuals[boosted] = dynamic_residuals(features, predicted, watts[boosted])
        keys, known = correction_keys(queries), self.measured.devices
        return replace(self, scalars=self.scalars.updated(residuals, *keys, known))

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Power of each query, with intervals if the predictor was calibrated."""
        assert self.law is not None
        runs = PowerRuns.of(queries)
        correction = self.scalars.correction(*correction_keys(queries))
        demand = self.law.demand(runs).times(np.ones(len(queries)), np.exp(correction))
        value = limited_w(runs, demand)
        low, high = value, value
        if self.intervals is not None:
            low, high = self.intervals.ends(runs, demand, [self._known(q) for q in queries])
        boosted = self._boosted(queries)
        if boosted.any():
            kernels = [queries[int(row)] for row in np.flatnonzero(boosted)]
            columns = self._boosted_columns(kernels, correction[boosted])
            value, low, high = np.array([value, low, high])
            value[boosted], low[boosted], high[boosted] = columns
        limits = [self._limits(query) for query in queries]
        if self.intervals is None:
            return Predictions({"power_w": value}, limits=limits)
        ends = ({"power_w": np.minimum(low, value)}, {"power_w": np.maximum(high, value)})
        return Predictions({"power_w": value}, *ends, LEVEL, limits)

    def _boosted_columns(
        self, kernels: Sequence[Query], correction: Column
    ) -> tuple[Column, Column, Column]:
        """Value, low and high of n operators by the boosters, within what boards draw, (n,)."""
        assert self.boosters is not None
        features = gather_power(kernels)
        watts = boosted_w(self.boosters, features, correction)
        if self.operator_intervals is None:
            return watts, watts, watts
        low, high = self.operator_intervals.around(watts, strata(features, watts))
        tdp = features.waiting_w + features.headroom_w
        least = np.minimum(features.waiting_w, LEAST_SHARE * tdp)
        return watts, np.maximum(low, least), np.minimum(high, MOST_SHARE * tdp)

    def _boosted(self, queries: Sequence[Query]) -> Mask:
        """Mask of the operators on devices and in precisions that the boosters were trained on."""
        measured = self.measured
        return np.array(
            [
                isinstance(q.workload, Kernel)
                and q.run.precision in measured.precisions
                and q.device in measured.operators
                for q in queries
            ],
            dtype=np.bool_,
        )

    def _known(self, query: Query) -> str:
        """How well the model knows a query's device, a key of `DEVIATIONS`."""
        if self.scalars.rows(query.device) >= ENOUGH_ROWS:
            return "adapted"
        same = query.run.precision in self.measured.precisions and is_network(query)
        return "seen" if same and query.device in self.measured.networks else "unseen"

    def _limits(self, query: Query) -> tuple[Limit, ...]:
        measured, lines, transfers = self.measured, [], []
        trained = measured.networks if is_network(query) else measured.operators
        if self.scalars.rows(query.device) < ENOUGH_ROWS and query.device not in trained:
            what = "networks were" if is_network(query) else "operators were"
            known = f"{what} not" if query.device in measured.devices else "not"
            others = len(measured.devices.sheets)
            transfers.append(
                f"{known} measured on this device; estimated from {others} other devices"
            )
        if query.run.precision not in measured.precisions:
            precisions = ", ".join(measured.precisions)
            lines.append(f"precision is {query.run.precision}; the training set has {precisions}")
        if is_network(query) and measured.phases and phase_of(query) not in measured.phases:
            lines.append(f"no network was measured in {phase_of(query)}")
        if isinstance(query.workload, Kernel):
            op_class = CLASS_OF_NAME.get(query.workload.operator.kind, "unknown")
            if op_class not in measured.classes:
                lines.append(f"no {op_class} operator was measured")
        return (
            *(Limit(line, POWER, "transfer") for line in transfers),
            *(Limit(line, POWER) for line in lines),
        )
