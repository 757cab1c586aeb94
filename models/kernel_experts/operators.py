"""Predicts latency of single operators with experts per family, and of networks as their sums.

Experts of measured GPUs are weighted by similarity to the queried device. Matrix products and
convolutions have a physical base time; other families have one fitted to all GPUs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final, Self

import numpy as np

from forerun.data.columns import Column, Mask
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel
from forerun.features.caches import Recent
from forerun.features.llm_kernels.table import KernelGroup, KernelTable
from forerun.features.operators.features import (
    CLEAR_OF_LAUNCH_MS,
    FAMILIES,
    FAMILY_OF_KIND,
    FEATURES,
    LAUNCH_MS,
    TIMED_BY_EVENTS,
    assumed,
    operator_features,
)
from forerun.features.operators.kinds import CLASS_CODE, OPERATOR_CLASSES, workload_labels
from forerun.features.operators.query_table import Gathered, gather
from forerun.models.adaptation.support_gp import ENOUGH_ROWS, SupportGP, graph_digests
from forerun.models.adaptation.support_set import suggest_for_errors
from forerun.models.conformal import Intervals, LogQuantiles
from forerun.models.domain.device_novelty import (
    ARITHMETIC_SCALES,
    MEMORY_SCALES,
    device_position,
    novelty_limits,
)
from forerun.models.equal_runs import RunKey, batch_key
from forerun.models.kernel_experts.family import (
    HUBER,
    BaseTime,
    Family,
    KernelExperts,
    Settings,
    Sums,
    interval_scale,
)
from forerun.models.kernel_experts.recurrent_law import HELD_OUT_REACH, LAW, recurrent_limits
from forerun.models.limit import LATENCY, Limit
from forerun.models.prediction import OperatorTime, Predictions, merged_times
from forerun.models.predictor import SETTING

PARAMETERS: Final[Mapping[str, Any]] = {
    "objective": "huber",
    "alpha": HUBER,
    "learning_rate": 0.08,
    "feature_fraction": 0.6,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "lambda_l2": 1.0,
    "min_data_in_leaf": 40,
    "min_sum_hessian_in_leaf": 0.01,
    "feature_pre_filter": False,
    "num_leaves": 31,
}
ARITHMETIC: Final = ("product", "conv", "recurrent")
"""Compute-bound families, which have a physical base time."""
BACKGROUND: Final[Mapping[str, float]] = {"softmax": 1.0}
"""Family -> similarity added for every device; 0.01 for others. Softmax time depends more on block
layouts than on the GPU generation (error on held-out training GPUs: 24 % with 1, 30 % without)."""
FEWEST_ROWS: Final = 100
"""Rows of a family from which a GPU gets a booster."""
TIMED_KINDS: Final = (*TIMED_BY_EVENTS, "recurrent")
"""Operators of the published tables, and those with limits of their own. Times of others follow
from their traffic or arithmetic, as of the nearest family."""
LOWEST_WEIGHT: Final = 0.5
"""Weight below which rows are unreliable and not used in training."""
FAR_OPERATORS: Final = 1.0
"""Distance beyond which intervals no longer widen."""
NOT_TRAINED: Final[Mapping[str, float]] = {"conv": 1.1}
"""Family -> least half-width, in log units, of intervals of operators unlike the training rows: of
other kinds, in other formats, or shorter; 0.6 for others. Nine in ten convolutions are within 1.09
on an A30 (TF32, torch_op_energy) and a V100 (fp16, DeepBench). Nine in ten others are within 0.51
on these, a GeForce RTX 2080 Ti (torch_op_energy), an A100 and an A40 (fp16, Vidur), with equal
weight per GPU; 0.6 is that times Student's quantile over the normal one for five."""
OTHER_CONV: Final = 1.65
"""Time of convolutions in TF32 and 16 bits over the time extrapolated from fp32, which does not use
matrix units: medians of an A30 (torch_op_energy) and a V100 (DeepBench)."""
SUMS_KEPT: Final = 10_000
"""Network runs, by device and batch size, whose sums are cached for the next adaptation."""
PHYSICAL: Final = BaseTime(LAUNCH_MS / 1e3, np.zeros(0), np.ones(1), 0.0)
AT_ONCE: Final = Family({"other": BaseTime(0.0, np.zeros(0), np.ones(1), 0.0)})
"""The base time alone, which is that of `recurrent_law`."""


@dataclass(frozen=True)
class OperatorBoost(KernelExperts):
    """Latency of kernels, and of networks as sums of kernels.

    Attributes:
        trees: boosting rounds of each booster.
        families: family -> analytical model and boosters.
        precisions: number formats of the training rows.
        positions: GPUs of the training rows, as given by `device_position`.
        networks: errors of whole networks on adapted devices, in addition to those of their
            kernels.
    """

    trees: int = field(default=120, metadata=SETTING)
    families: Mapping[str, Family] = field(default_factory=dict)
    precisions: tuple[str, ...] = ()
    positions: tuple[tuple[float, ...], ...] = ()
    networks: SupportGP = field(default_factory=SupportGP)
    name: ClassVar[str] = "operator_boost"
    metrics: ClassVar[tuple[str, ...]] = ("latency_ms",)
    prior_devices: ClassVar[float] = 2.0
    far: ClassVar[float] = FAR_OPERATORS
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {
        f"features of {family}": FEATURES[family] for family in FAMILIES
    }

    def answers(self, query: Query) -> bool:
        """Whether the predictor is fitted and the query has a roofline bound."""
        return bool(self.families) and query.has_bound

    def groups(self, queries: Sequence[Query]) -> Iterator[KernelGroup]:
        """The operators of queries, grouped by family, device and precision."""
        for part in gather(queries):
            yield from _groups(part, part.owner)

    def expert(self, family: str) -> Family:
        """The expert of a family; its base time alone where no kernel was measured."""
        if family == "recurrent":
            return AT_ONCE
        return self.families.get(family) or Family({"other": PHYSICAL})

    def trained(self, group: KernelGroup, weights: Column) -> Mask:
        """Reliable rows whose time is not dominated by the launch."""
        clear_s = CLEAR_OF_LAUNCH_MS.get(group.family, 0.02) / 1e3
        return (weights >= LOWEST_WEIGHT) & (group.table.bound_s > clear_s)

    def least_reach(self, group: KernelGroup) -> Column:
        """The value of `NOT_TRAINED` for operators not timed the way training rows were."""
        return np.where(group.table.launch < 1.0, NOT_TRAINED.get(group.family, 0.6), 0.0)

    def as_timed(self, table: KernelTable) -> KernelTable:
        """Training rows, timed with a pair of CUDA events."""
        return replace(table, launch=np.ones(len(table)), start_s=np.zeros(len(table)))

    def fit_family(self, name: str, parts: Sequence[KernelGroup]) -> Family:
        """Fit a base time, and a booster for each GPU."""
        base = PHYSICAL if name in ARITHMETIC else None
        settings = Settings(self.trees, PARAMETERS, base, BACKGROUND.get(name, 0.01), FEWEST_ROWS)
        return Family.fit(parts, settings, self.seed)

    def fit(self, measurements: Measurements) -> Self:
        """Fit every family, and calibrate intervals on held-out GPUs and sizes.

        Args:
            measurements: kernels with `latency_ms`; rows with a weight below 0.5 are dropped.
        """
        fitted = super().fit(measurements)
        devices = sorted({query.device for query in measurements.queries}, key=lambda d: d.name)
        return replace(
            fitted,
            precisions=tuple(sorted({q.run.precision for q in measurements.queries})),
            positions=tuple(tuple(device_position(device).tolist()) for device in devices),
            intervals=_with_recurrent(fitted.intervals) if fitted.intervals else None,
            networks=SupportGP(),
        )

    def adapt(self, measurements: Measurements) -> Self:
        """Adapt to devices from a few kernels or networks with `latency_ms`.

        Kernels are used first; networks then determine the remaining error of sums.
        """
        is_kernel = np.array([q.run.kind == "kernel" for q in measurements.queries], dtype=np.bool_)
        adapted = super().adapt(measurements.take(is_kernel)) if is_kernel.any() else self
        return adapted if is_kernel.all() else adapted._with_networks(measurements.take(~is_kernel))

    def _with_networks(self, measurements: Measurements) -> Self:
        queries = measurements.queries
        # Adapting to one more device passes the rows of all earlier ones again, so results are
        # cached.
        unadapted = self._sums_ms.of_each(
            [batch_key(query) for query in queries],
            lambda missing: self.sums([queries[row] for row in missing]).total.tolist(),
        )
        errors = np.log(measurements.values["latency_ms"] / np.array(unadapted))
        devices, phases = [q.device for q in queries], [_phase(q) for q in queries]
        plain, digests = np.zeros((len(queries), 1)), graph_digests(queries)
        networks = self.networks.updated(errors, devices, phases, plain, self.known, digests)
        return replace(self, networks=networks)

    @cached_property
    def _sums_ms(self) -> Recent[RunKey, float]:
        """Device time of networks before whole-network corrections, milliseconds."""
        return Recent(SUMS_KEPT)

    def suggest(self, queries: Sequence[Query], count: int, seed: int = 0) -> list[int]:
        """Positions of the `count` workloads that are most informative to measure on a new device.

        A network's features are the mean of its kernels' features, weighted by their shares of the
        time; one-hot columns separate families.

        Args:
            queries: candidates.
            count: number to choose.
            seed: draws a subset from very many candidates.
        """
        width, n = self._width, len(queries)
        rows, time = np.zeros((n, width + len(FAMILIES))), np.zeros(n)
        for group in self.groups(queries):
            logs = self.expert(group.family).log_values(group)
            total = np.exp(logs) * group.counts
            one_hot = np.zeros((len(group), len(FAMILIES)))
            one_hot[:, FAMILIES.index(group.family)] = np.sqrt(len(FAMILIES))
            columns = np.hstack([self._columns(group, logs), one_hot])
            np.add.at(rows, group.rows, columns * total[:, None])
            np.add.at(time, group.rows, total)
        return suggest_for_errors(rows / time[:, None], count, seed)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Latency as a sum over operators."""
        predicted = super().predict(queries)
        if not self.networks.devices:
            return predicted
        scale, deviation = self._network_scale(queries)
        value, low, high = (
            side["latency_ms"] * scale if side else predicted.values["latency_ms"] * scale
            for side in (predicted.values, predicted.low, predicted.high)
        )
        ends = self.networks.intervals(value, deviation, low, high)
        breakdowns = [
            {name: ms * factor for name, ms in breakdown.items()}
            for breakdown, factor in zip(predicted.breakdowns_ms, scale.tolist(), strict=True)
        ]
        return Predictions.of_metric(
            "latency_ms",
            value,
            ends if self.intervals else None,
            coverage=predicted.coverage,
            limits=predicted.limits,
            breakdowns_ms=breakdowns,
        )

    def _network_scale(self, queries: Sequence[Query]) -> tuple[Column, Column]:
        """Correction factor of whole networks (1 for kernels), and its log deviation."""
        scale, deviation = np.ones(len(queries)), np.full(len(queries), np.nan)
        rows = [row for row, query in enumerate(queries) if query.run.kind == "network"]
        if rows:
            networks = [queries[row] for row in rows]
            devices, phases = [q.device for q in networks], [_phase(q) for q in networks]
            mean, deviation[rows] = self.networks.correction(
                devices, phases, np.zeros((len(rows), 1)), graph_digests(networks)
            )
            scale[rows] = np.exp(mean)
        return scale, deviation

    def operator_times(self, query: Query) -> list[OperatorTime]:
        """Time of each operator of a query, before whole-network corrections."""
        (part,) = gather([query])
        counts = part.table.repeat
        times = np.zeros(len(counts))
        for group in _groups(part, np.arange(len(counts))):
            times[group.rows] = self.answers_of(group)[0]
        classes = [OPERATOR_CLASSES[code] for code in part.table.op_class.tolist()]
        return merged_times(workload_labels(query.run), classes, counts, times * counts)

    def limits_of(self, queries: Sequence[Query], sums: Sums) -> list[tuple[Limit, ...]]:
        """Limits of each query: what was not measured, and much time in recurrent layers."""
        shares = sums.by_class[:, CLASS_CODE["recurrent"]] / np.maximum(sums.total, 1e-300)
        return [
            (*self.limits(query), *recurrent_limits(share, query))
            for query, share in zip(queries, shares.tolist(), strict=True)
        ]

    def limits(self, query: Query) -> tuple[Limit, ...]:
        """Limits of a query: what was not measured."""
        precision, device = query.run.precision, query.device
        limits: list[Limit] = []
        if self.precisions and precision not in self.precisions:
            known = ", ".join(self.precisions)
            limits.append(Limit(f"precision is {precision}; the training set has {known}", LATENCY))
        enough = self.adapted(device) or self.networks.rows(device) >= ENOUGH_ROWS
        if device not in self.known and not enough:
            limits.extend(novelty_limits(device, map(np.array, self.positions)))
        missing = (f"{name} is missing from the spec sheet" for name in assumed(device))
        limits.extend(Limit(line, LATENCY) for line in missing)
        limits.extend((*self.support.limits(device), *self.networks.limits(device)))
        run = query.workload
        adapted = self.adapted(device)
        if isinstance(run, Kernel) and run.operator.kind not in TIMED_KINDS and not adapted:
            line = f"no {run.operator.kind} operator was measured on such a GPU"
            limits.append(Limit(line, LATENCY))
        unknown = query.run.graph.unknown if query.run.kind == "network" else {}
        if unknown:
            names = ", ".join(sorted(unknown))
            line = f"{sum(unknown.values())} operators are of unknown kind: {names}"
            limits.append(Limit(line, LATENCY))
        return tuple(limits)


def _groups(part: Gathered, owner: "np.ndarray[Any, np.dtype[np.intp]]") -> Iterator[KernelGroup]:
    """The operators of one device and precision, grouped by family.

    Args:
        part: n operators.
        owner: (n,) query of each operator.
    """
    families, device = FAMILY_OF_KIND[part.table.kind], part.device
    place = device_position(device)
    for code in np.flatnonzero(np.bincount(families)).tolist():
        name, rows = FAMILIES[code], families == code
        operators = part.table.take(rows)
        table = operator_features(operators, device, part.precision, name)
        if name == "recurrent":
            seconds = LAW.seconds(operators, device, part.precision)
            nothing, launch = np.zeros(len(operators)), np.ones(len(operators))
            replaced = {"launch": launch, "power_s": nothing, "start_s": nothing}
            table = replace(table, parallel_s=seconds[:, None], **replaced)
        if name == "conv" and part.precision != "fp32":
            table = replace(table, parallel_s=OTHER_CONV * table.parallel_s)
        scales = ARITHMETIC_SCALES if name in ARITHMETIC else MEMORY_SCALES
        yield KernelGroup(
            name,
            device,
            tuple((place / scales / np.sqrt(2.0)).tolist()),
            owner[rows],
            np.full(len(operators), "other"),
            operators.repeat,
            operators.op_class,
            table,
            np.full(len(operators), np.nan),
        )


def _with_recurrent(intervals: Intervals) -> Intervals:
    """The intervals plus that of recurrent layers, which is not calibrated on these rows."""
    reach = HELD_OUT_REACH / interval_scale(np.inf, FAR_OPERATORS)
    seen = {**intervals.seen.bounds, "recurrent": (0.0, 0.0)}
    unseen = {**intervals.unseen.bounds, "recurrent": (-reach, reach)}
    return Intervals(LogQuantiles(seen), LogQuantiles(unseen))


def _phase(query: Query) -> str:
    return query.run.phase if query.run.kind == "network" else "kernel"
