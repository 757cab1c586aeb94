"""Predicts device time under PyTorch as the sum of kernel times plus a learned correction.

`KernelTimes` gives the time of each kernel. Gradient-boosted trees on features of the whole network
correct the sum for effects beyond single kernels, and a Gaussian process corrects for errors on a
device after adaptation. Recurrent layers are added with the times of `recurrent_law`. On CPUs,
where no separate device time exists, the result is the latency.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple, Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix, Names, rows_by
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.level import LEVEL
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.features.caches import GraphKey, Recent, kept_by_graph
from forerun.features.kernels.rows import FEATURES, KernelRows, labelled_kernels
from forerun.features.operators.features import LAUNCH_MS
from forerun.features.operators.kinds import OPERATOR_CLASSES, by_class
from forerun.features.operators.query_table import query_table
from forerun.models.adaptation.support_gp import ENOUGH_ROWS, Standardizer, SupportGP, graph_digests
from forerun.models.adaptation.support_set import suggest_for_errors
from forerun.models.artifact.codec import NOT_STORED
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import Intervals, group_weights, out_of_fold, weighted_quantile
from forerun.models.domain.feature_range import FeatureRange, sheet
from forerun.models.equal_runs import RunKey, batch_key
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.kernel_experts.recurrent_law import (
    HELD_OUT_REACH,
    LAW,
    RECURRENT,
    recurrent_limits,
)
from forerun.models.kernels.kernel_times import KernelTimes
from forerun.models.limit import Limit
from forerun.models.networks.domain import KernelMixes, NetworkDomain
from forerun.models.networks.intervals import (
    FOLDS,
    CalibrationRows,
    WidthLaw,
    intervals_of,
    spread_of,
)
from forerun.models.networks.rows import (
    CLASS_OF_KERNEL_KIND,
    NETWORK_FEATURES,
    OPERATOR,
    RANGED,
    RANGED_FEATURES,
    NetworkRows,
    execution_mode,
    with_latency,
)
from forerun.models.prediction import OperatorTime, Predictions, merged_times
from forerun.models.predictor import SETTING

BOOSTER: Final[Mapping[str, Any]] = {
    "objective": "l1",
    "learning_rate": 0.05,
    "num_leaves": 16,
    "min_data_in_leaf": 100,
    "feature_fraction": 0.4,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "lambda_l2": 2.0,
}
ANSWERS_KEPT: Final = 10_000
"""Runs whose times are cached, for repeated queries and for the next adaptation."""
WITHIN: Final = 0.9
"""Share of the held-out families that count as inside the training domain."""
MOST_ROWS: Final = 1000
"""Training rows per epoch from one combination of device, execution mode and number format."""
FEWEST_ALIKE: Final = 100
"""Rows per combination up to which each row has full weight. Above it, a row's weight is the
inverse square root of their number, so that no table outweighs the others."""
MOST_IN_CALIBRATION: Final = 250
"""The same limit as `MOST_ROWS` for the refits that calibrate intervals."""
ENOUGH_OPERATORS: Final = 200
"""Number of measured operators from which a GPU no longer counts as novel."""
BY_OPERATORS: Final = 0.45
"""Least half-width, in log units, of intervals for networks on a GPU with only operators measured:
that which covers nine in ten recorded networks of an H100 and an H200."""
CLEAR_OF_LAUNCH_S: Final = 10 * LAUNCH_MS / 1e3
"""Seconds from which an operator's time reflects its kernels even if the host timed it with its
launch."""


class _Answer(NamedTuple):
    """Uncalibrated predictions of n runs.

    Attributes:
        rows: the runs as sums of their kernels.
        log_seconds: (n,) predicted log time.
        spread: (n,) size of the correction.
        novelty: (n,) distance to the nearest training network.
    """

    rows: NetworkRows
    log_seconds: Column
    spread: Column
    novelty: Column


class _Run(NamedTuple):
    """The time of one run, and the log distances of its interval's ends."""

    ms: float = 0.0
    low: float = 0.0
    high: float = 0.0
    limits: tuple[Limit, ...] = ()
    breakdown_ms: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True)
class DeviceTime(StoredPredictor):
    """Device time of networks and single operators, and latency of networks on CPUs.

    Attributes:
        seed: random seed.
        epochs: passes over the training rows.
        trees: boosting rounds of the correction.
        calibrated: whether `fit` also calibrates intervals, at five times the cost.
        kernel_times: time of each kernel.
        correction: gradient-boosted correction of whole networks.
        intervals: quantiles of scaled log errors, stratified by execution mode on seen devices.
        ranges: ranges of the features over the training rows.
        domain: devices, phases, precisions and feature ranges of the training rows.
        mixes: kernel mixes of the training networks.
        width_law: scale of errors as a function of the correction's size and of novelty.
        support_gp: errors on devices after adaptation.
        scale: standardises features by the training rows.
    """

    seed: int = field(default=0, metadata=SETTING)
    epochs: int = field(default=20, metadata=SETTING)
    trees: int = field(default=400, metadata=SETTING)
    threads: int = field(default=1, metadata={**SETTING, **NOT_STORED})
    calibrated: bool = field(default=True, metadata=SETTING)
    kernel_times: KernelTimes = field(default_factory=KernelTimes)
    correction: BoosterBag | None = None
    intervals: Intervals | None = None
    ranges: FeatureRange | None = None
    domain: NetworkDomain = field(default_factory=NetworkDomain)
    mixes: KernelMixes | None = None
    width_law: WidthLaw = field(default_factory=WidthLaw)
    support_gp: SupportGP = field(default_factory=SupportGP)
    scale: Standardizer | None = None
    name: ClassVar[str] = "device_time"
    metrics: ClassVar[tuple[str, ...]] = ("latency_ms",)
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {
        "features of kernels": FEATURES,
        "features of networks": NETWORK_FEATURES,
    }

    def answers(self, query: Query) -> bool:
        """Whether the query is a network, or an operator on a device with operators in training."""
        return self.domain.answers(query)

    def fit(self, measurements: Measurements) -> Self:
        """Fit kernel times and the correction on all rows; calibrate on held-out groups.

        Args:
            measurements: networks and operators with `latency_ms` and the groups `device` and
                `family`; operators also with `model`, their shape. Rows without a latency or with
                zero weight are ignored.
        """
        kept = with_latency(measurements)
        training = _Training.of(kept)
        fitted = replace(self._fitted(training), support_gp=SupportGP())
        rows = fitted._answer(kept.queries, training.kernels).rows
        networks = rows.modes != OPERATOR
        fitted = replace(
            fitted,
            domain=NetworkDomain.of(kept.queries, _domains(rows)),
            scale=Standardizer.of(rows.features[networks]),
        )
        if not self.calibrated:
            return replace(fitted, intervals=None)
        chosen = training.sample(MOST_IN_CALIBRATION, self.seed)
        modes, training = rows.modes[chosen], training.take(chosen)
        errors, spreads, novelty = self._held_out(training)
        of_rows = CalibrationRows(modes, training.family, training.device)
        law = WidthLaw.of(errors, spreads, novelty, training.family)

        def refit_errors(used: Mask, held: Mask) -> Column:
            return training.log_measured[held] - self._refitted(training, used, held).log_seconds

        intervals = intervals_of(of_rows, errors, law.scale(spreads, novelty), refit_errors)
        farthest = _farthest(novelty, of_rows)
        domain = replace(fitted.domain, farthest=farthest)
        return replace(fitted, intervals=intervals, width_law=law, domain=domain)

    def _held_out(self, training: "_Training") -> tuple[Column, Column, Column]:
        """Log errors, spreads and novelty of each row, from fits without its family; each (n,)."""

        def predict(held: Mask) -> tuple[Column, Column, Column]:
            answer = self._refitted(training, ~held, held)
            return answer.log_seconds, answer.spread, answer.novelty

        predicted, spreads, novelty = out_of_fold(
            training.family, predict, folds=FOLDS, seed=self.seed, columns=3
        )
        errors = training.log_measured - predicted
        return errors, np.where(np.isnan(spreads), 1.0, spreads), novelty

    def _refitted(self, training: "_Training", used: Mask, held: Mask) -> _Answer:
        """Predictions for the rows `held` after fitting on the rows `used`."""
        fitted = self._fitted(training.take(used))
        asked = training.take(held)
        return fitted._answer(asked.queries, asked.kernels)

    def _fitted(self, training: "_Training") -> Self:
        from forerun.models.kernels.fitting import Settings, fit

        times = fit(
            training.queries,
            training.kernels,
            np.exp(training.log_measured),
            training.weights,
            seed=self.seed,
            settings=Settings(epochs=self.epochs),
            share=np.minimum(1.0, MOST_ROWS / training.alike),
        )
        rows = NetworkRows.of(training.queries, times, training.kernels)
        networks = rows.modes != OPERATOR
        ranges = FeatureRange.of(NETWORK_FEATURES, rows.features[networks])
        booster = BoosterBag.fit(
            rows.features[networks],
            (training.log_measured - rows.log_seconds)[networks],
            parameters=BOOSTER,
            trees=self.trees,
            seeds=(self.seed,),
            weights=training.weights[networks],
            threads=self.threads,
        )
        mixes = KernelMixes.of(rows.features[networks], rows.fused[networks])
        return replace(self, kernel_times=times, correction=booster, ranges=ranges, mixes=mixes)

    def unadapted(self) -> Self:
        """The predictor before any `adapt`."""
        return replace(
            self, support_gp=SupportGP(), kernel_times=replace(self.kernel_times, own=())
        )

    def learns_kernels(self, query: Query) -> bool:
        """Whether a query is an operator on a new GPU, whose kernel times `adapt` learns."""
        run, device = query.workload, query.device
        if not isinstance(run, Kernel) or device.kind != "gpu" or not query.has_bound:
            return False
        elsewhere = query.software.runtime == "onnxruntime" or run.operator.kind == "recurrent"
        trained = device in self.domain.known or device in self.domain.with_operators
        return self.correction is not None and not (elsewhere or trained)

    def adapt(self, measurements: Measurements, together: bool = False) -> Self:
        """Adapt to devices with a few runs with `latency_ms`, learning errors by execution mode.

        Operators on a GPU without training rows also refit its kernel times, which improves its
        networks.

        Args:
            measurements: networks or operators.
            together: whether these devices share all errors, which preserves their ranking;
                otherwise each device uses its own rows only.
        """
        learnt = np.array([*map(self.learns_kernels, measurements.queries)], dtype=np.bool_)
        if not learnt.any():
            return self._with_errors(measurements, together)
        adapted = self._with_operators(measurements.take(learnt))
        rest = measurements.take(~learnt)
        return adapted._with_errors(rest, together) if len(rest) else adapted

    def _with_operators(self, operators: Measurements) -> Self:
        """Fit kernel times to operators on new GPUs.

        If even the fastest operator of a GPU takes about as long as a launch, all were timed with
        their launches, and only long ones reflect their kernels' times.
        """
        operators = with_latency(operators)
        seconds = operators.values["latency_ms"] / 1e3
        kept = np.zeros(len(operators), dtype=np.bool_)
        for rows in rows_by(sheet(query.device) for query in operators.queries).values():
            launched = seconds[rows].min() > LAUNCH_MS / 2e3
            kept[rows] = (seconds[rows] >= CLEAR_OF_LAUNCH_S) | (not launched)
        if not kept.any():
            return self
        operators, seconds = operators.take(kept), seconds[kept]
        weights = np.ones(len(operators)) if operators.weights is None else operators.weights
        kernels = KernelRows.of(operators.queries)
        times = self.kernel_times.with_operators(operators.queries, kernels, seconds, weights)
        return replace(self, kernel_times=times)

    def _with_errors(self, measurements: Measurements, together: bool) -> Self:
        """Learn the errors on devices from these runs."""
        queries = measurements.queries

        def compute(missing: list[int]) -> list[tuple[float, Column]]:
            answer = self._answer([queries[row] for row in missing])
            return list(zip(answer.log_seconds.tolist(), answer.rows.features, strict=True))

        # Adapting to one more device passes the rows of all earlier ones again, so results are
        # cached.
        found = self._unadapted.of_each(list(map(_key, queries)), compute)
        log_seconds = np.array([seconds for seconds, _ in found])
        support_gp = self.support_gp.updated(
            np.log(measurements.values["latency_ms"] / 1e3) - log_seconds,
            [query.device for query in queries],
            [execution_mode(query) for query in queries],
            self._standard(np.array([features for _, features in found])),
            self.domain.known,
            graph_digests(queries),
            comparable=True,
            together=together,
        )
        return replace(self, support_gp=support_gp)

    @cached_property
    def _unadapted(self) -> Recent[RunKey, tuple[float, Column]]:
        """Log seconds before adaptation, and features, of runs on a device."""
        return Recent(ANSWERS_KEPT)

    def suggest(self, queries: Sequence[Query], count: int, seed: int = 0) -> list[int]:
        """Positions of the `count` networks that are most informative to measure on a new device.

        Args:
            queries: candidates.
            count: number to choose.
            seed: draws a subset from very many candidates.
        """
        rows = NetworkRows.of(queries, self.kernel_times, KernelRows.of(queries))
        return suggest_for_errors(self._standard(rows.features), count, seed)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Device time of each run with interval, limits and breakdown by operator class.

        Raises:
            UnknownPrecision: a device's sheet has no peak for a query's precision.
        """
        found = self._answered.of_each(
            list(map(_key, queries)), lambda missing: self._runs([queries[row] for row in missing])
        )
        ms, low, high = np.array([run[:3] for run in found], dtype=np.float64).reshape(-1, 3).T
        return Predictions.of_metric(
            "latency_ms",
            ms,
            (ms * np.exp(-low), ms * np.exp(high)) if self.intervals else None,
            coverage=LEVEL if self.intervals else None,
            limits=[run.limits for run in found],
            breakdowns_ms=[run.breakdown_ms for run in found],
        )

    @cached_property
    def _answered(self) -> Recent[RunKey, _Run]:
        """Cached times of earlier queries."""
        return Recent(ANSWERS_KEPT)

    def _runs(self, queries: Sequence[Query]) -> list[_Run]:
        """Times of runs including their recurrent layers."""
        rests = [_rest_of(query) for query in queries]
        kept = [row for row, rest in enumerate(rests) if rest is not None]
        asked = [rest for rest in rests if rest is not None]
        found = [_Run()] * len(queries)
        if kept:
            for row, run in zip(kept, self._without_recurrent(asked), strict=True):
                found[row] = run
        for row, (rest, query) in enumerate(zip(rests, queries, strict=True)):
            if rest is not query:
                found[row] = _with_recurrent(query, found[row])
        return found

    def _without_recurrent(self, queries: Sequence[Query]) -> Iterator[_Run]:
        """Times of runs without their recurrent layers."""
        answer = self._answer(queries)
        values, ends = self._with_interval(queries, answer)
        low, high = (np.abs(np.log(end / values)) for end in ends)
        by_classes = answer.rows.class_shares * values[:, None]
        for row, query in enumerate(queries):
            times = (float(values[row]), float(low[row]), float(high[row]))
            yield _Run(*times, self._limits(query, answer, row), by_class(by_classes[row]))

    def operator_times(self, query: Query) -> list[OperatorTime]:
        """Time of each launched kernel; kernels that the runtime adds have a separate class."""
        runs, labels = labelled_kernels(query)
        rows = KernelRows.of_runs([query], [runs])
        seconds = self.kernel_times.kernel_seconds([query], rows) * rows.count
        classes = [OPERATOR_CLASSES[code] for code in CLASS_OF_KERNEL_KIND[rows.kind].tolist()]
        return merged_times(labels, classes, rows.count, seconds * 1e3)

    def _answer(self, queries: Sequence[Query], kernels: KernelRows | None = None) -> _Answer:
        """Predictions before adaptation; kernels are lowered in batches unless given."""
        if kernels is None:
            kernels = KernelRows.of(queries)
        assert self.correction is not None
        assert self.ranges is not None
        assert self.mixes is not None
        rows = NetworkRows.of(queries, self.kernel_times, kernels)
        network = rows.modes != OPERATOR
        correction = np.zeros(len(rows))
        if network.any():
            inside = self.ranges.clip(rows.features[network])
            correction[network] = self.correction.predict(inside)
        novelty = np.zeros(len(rows))
        novelty[network] = self.mixes.novelty(rows.features[network], rows.fused[network])
        return _Answer(rows, rows.log_seconds + correction, spread_of(correction), novelty)

    def _with_interval(
        self, queries: Sequence[Query], answer: _Answer
    ) -> tuple[Column, tuple[Column, Column]]:
        """Milliseconds and the ends of their intervals, each (n,)."""
        devices, modes = [query.device for query in queries], answer.rows.modes
        error, deviation = np.zeros(len(queries)), np.full(len(queries), np.nan)
        if self.support_gp.devices:
            error, deviation = self.support_gp.correction(
                devices,
                modes.tolist(),
                self._standard(answer.rows.features),
                graph_digests(queries),
            )
        values = np.exp(answer.log_seconds + error) * 1e3
        if self.intervals is None:
            return values, (values, values)
        seen = np.array([device in self.domain.known for device in devices], dtype=np.bool_)
        # On an unseen device the shift of the whole device dominates, so the width is constant.
        scale = self.width_law.scale(answer.spread, answer.novelty)
        low, high = self.intervals.around(values, modes, seen, scale)
        by_operators = {device: self.kernel_times.operators(device) > 0 for device in set(devices)}
        least = np.array([BY_OPERATORS * by_operators[device] for device in devices])
        low, high = (
            np.minimum(low, values * np.exp(-least)),
            np.maximum(high, values * np.exp(least)),
        )
        return values, self.support_gp.intervals(values, deviation, low, high)

    def _standard(self, features: Matrix) -> Matrix:
        assert self.scale is not None
        return self.scale.apply(features, features.shape[1])

    def _limits(self, query: Query, answer: _Answer, row: int) -> tuple[Limit, ...]:
        assert self.mixes is not None
        adapted = (
            self.support_gp.rows(query.device) >= ENOUGH_ROWS
            or self.kernel_times.operators(query.device) >= ENOUGH_OPERATORS
        )
        features, novelty = answer.rows.features[row], float(answer.novelty[row])
        of_domain = self.domain.limits(query, features[RANGED], adapted)
        if query.device.kind == "gpu" and novelty > self.domain.farthest:
            differs = self.mixes.nearest_difference(features, bool(answer.rows.fused[row]))
            of_domain = (*of_domain, self.domain.far_limit(novelty, differs))
        return (*of_domain, *self.support_gp.limits(query.device))


@dataclass(frozen=True)
class _Training:
    """n training rows.

    Attributes:
        queries: n runs.
        kernels: their kernels.
        log_measured: (n,) logarithm of the measured seconds.
        weights: (n,) weight of each row.
        family, device: (n,) groups that calibration holds out: architecture families, or shapes of
            single operators; device architectures.
        alike: (n,) number of rows with the same device, execution mode and number format.
    """

    queries: Sequence[Query]
    kernels: KernelRows
    log_measured: Column
    weights: Column
    family: Names
    device: Names
    alike: Column

    @classmethod
    def of(cls, rows: Measurements) -> Self:
        """The rows, with each graph lowered once."""
        queries = rows.queries
        modes = [execution_mode(query) for query in queries]
        operator = np.array(modes) == OPERATOR
        families = np.where(operator, rows.group("model"), rows.group("family"))
        of_device = [query.device.architecture or query.device.name for query in queries]
        strata = [
            f"{q.device.name} {m} {q.run.precision}" for q, m in zip(queries, modes, strict=True)
        ]
        _, stratum, counts = np.unique(strata, return_inverse=True, return_counts=True)
        alike = counts[stratum].astype(np.float64)
        given_weights = np.ones(len(rows)) if rows.weights is None else rows.weights
        return cls(
            queries,
            KernelRows.of(queries),
            np.log(rows.values["latency_ms"] / 1e3),
            given_weights / np.sqrt(np.clip(alike, FEWEST_ALIKE, MOST_ROWS)),
            families,
            np.array(of_device, dtype=np.str_),
            alike,
        )

    def sample(self, most: int, seed: int) -> Mask:
        """A random mask of about `most` rows per device, execution mode and number format, (n,)."""
        drawn = np.random.default_rng(seed).random(len(self.alike))
        return np.asarray(drawn < most / self.alike, dtype=np.bool_)

    def take(self, rows: Mask) -> Self:
        """The rows where the mask is True."""
        kept = np.flatnonzero(rows)
        return replace(
            self,
            queries=[self.queries[row] for row in kept.tolist()],
            kernels=self.kernels.of_runs_at(rows),
            **{name: getattr(self, name)[kept] for name in _COLUMNS_OF_TRAINING},
        )


_COLUMNS_OF_TRAINING: Final = ("log_measured", "weights", "family", "device", "alike")


def _key(query: Query) -> RunKey:
    """A key of everything that determines the time of a run."""
    run = query.run
    if isinstance(run, Network):
        return batch_key(query)
    digest = OperatorGraph((run.operator,)).digest
    return (query.device, digest, run.precision, query.software)


def _domains(rows: NetworkRows) -> dict[str, FeatureRange]:
    kinds, features = np.where(rows.modes == "cpu", "cpu", "gpu"), rows.features
    return {
        str(kind): FeatureRange.of(RANGED_FEATURES, features[kinds == kind][:, RANGED])
        for kind in np.unique(kinds)
    }


def _farthest(novelty: Column, rows: CalibrationRows) -> float:
    """Distance within which `WITHIN` of the held-out families on GPUs lie, with equal weights."""
    known = np.isfinite(novelty) & (rows.modes != "cpu") & (rows.modes != OPERATOR)
    if not known.any():
        return float("inf")
    return weighted_quantile(novelty[known], group_weights(rows.family[known]), WITHIN)


def _rest_of(query: Query) -> Query | None:
    """The query without recurrent layers: itself if it has none, None if nothing remains."""
    run = query.run
    if not isinstance(run, Network):
        return None if run.operator.kind == "recurrent" else query
    graph = _graph_rest(GraphKey(run.graph))
    if graph is None:
        return query
    return replace(query, workload=replace(run, graph=graph)) if graph.operators else None


@kept_by_graph()
def _graph_rest(key: GraphKey) -> OperatorGraph | None:
    """A graph without its recurrent layers; None where it has none."""
    graph = key.graph
    if all(op.kind != "recurrent" for op in graph.operators):
        return None
    places: list[tuple[int, ...]] = []
    kept: list[Operator] = []
    for op in graph.operators:
        sources = tuple(sorted({place for source in op.inputs for place in places[source]}))
        places.append(sources if op.kind == "recurrent" else (len(kept),))
        if op.kind != "recurrent":
            kept.append(replace(op, inputs=sources))
    return replace(graph, operators=tuple(kept))


def _with_recurrent(query: Query, run: _Run) -> _Run:
    """The time of a run plus that of its recurrent layers."""
    table = query_table(query.run)
    layers = table.take(table.kind == RECURRENT)
    layer_seconds = LAW.seconds(layers, query.device, query.run.precision) * layers.repeat
    ms = 1e3 * float(layer_seconds.sum())
    share = ms / (run.ms + ms)
    reach = share * HELD_OUT_REACH
    low, high = (float(np.hypot((1.0 - share) * side, reach)) for side in (run.low, run.high))
    limits = (*run.limits, *recurrent_limits(share, query))
    return _Run(run.ms + ms, low, high, limits, {**run.breakdown_ms, "recurrent": ms})
