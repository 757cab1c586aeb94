"""Predicts latency and memory of networks and operators run by onnxruntime on a CPU.

The latency is a sum over the nodes that onnxruntime executes, at rates inferred from measurements
on the CPU (`forerun.models.processors.rates`). A run that was itself measured gets the median of
its measurements. Peak memory is the sum of weights, live activations and the session.

Queries become rows of work; the prior of a CPU's rates comes from its spec sheet.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log, log2
from typing import Any, ClassVar, Self

import numpy as np

from forerun.data.columns import Column, Matrix, groups_of
from forerun.data.device import Device
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.level import HALF_WIDTH, LEVEL
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Network, OperatorWorkload, batch_size_of, operator_graph, phase_of
from forerun.features.caches import OPERATORS_KEPT, GraphKey, kept_by_graph
from forerun.features.memory.liveness import inference_requests
from forerun.features.operators.kinds import operator_label
from forerun.features.processors.work import (
    CACHE_BYTES,
    COLUMNS,
    PRODUCTS,
    UNITS,
    work_by_node,
    work_of,
)
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import conformal_quantile
from forerun.models.limit import LATENCY, Limit
from forerun.models.prediction import OperatorTime, PredictionColumns, Predictions, merged_times
from forerun.models.processors.rates import (
    COUNT,
    RatePosterior,
    RatePrior,
    RateRows,
    StandardDeviations,
    fitted_prior,
)

PLAIN_CORE_TFLOPS = 0.1
"""fp32 peak of one core of the CPUs in the training set: 32 FLOPs per cycle at about 3 GHz."""
ESTIMATED = "derived: estimated from"


def latency_rows(
    queries: Sequence[Query],
    usual_threads: float | None = None,
    log_ms: Column | None = None,
    noise: Column | None = None,
) -> RateRows:
    """Queries as rows of work.

    Args:
        queries: n networks or operators on one device.
        usual_threads: number of threads of queries that give none. If None, all cores on the
            device's sheet, or one without a sheet.
        log_ms: (n,) logarithm of the measured milliseconds; NaN for all if None.
        noise: (n,) relative standard deviation of the measurements; 0.03 if None.
    """
    count = len(queries)
    graphs = [operator_graph(query.run) for query in queries]
    sizes = [batch_size_of(query.workload) or 1 for query in queries]
    amounts = [
        work_of(
            graph, size / graph.batch_size if _is_network(query) else 1.0, _cache(query)
        ).amounts
        for query, graph, size in zip(queries, graphs, sizes, strict=True)
    ]
    return RateRows(
        np.array(amounts).reshape(count, COUNT),
        np.array([log2(threads_of(query, usual_threads)) for query in queries]),
        np.array([log2(size) for size in sizes], dtype=np.float64),
        np.array([structure_of(graph) for graph in graphs], dtype=np.str_),
        np.array([_is_network(query) for query in queries], dtype=np.bool_),
        np.full(count, np.nan) if log_ms is None else log_ms,
        np.full(count, 0.03) if noise is None else noise,
    )


def node_amounts(query: Query) -> tuple[Matrix, tuple[Operator, ...], Column]:
    """Work of each node of a query, as returned by `work_by_node`."""
    graph, size = operator_graph(query.run), batch_size_of(query.workload) or 1
    factor = size / graph.batch_size if _is_network(query) else 1.0
    return work_by_node(graph, factor, _cache(query))


def threads_of(query: Query, usual: float | None = None) -> float:
    """Number of computing threads: the query's, else `usual`, else the device's cores, else one.

    Several instances without a thread count share the cores equally. Threads beyond the cores have
    no effect.
    """
    cores = None if _is_estimated(query.device, "compute_units") else query.device.compute_units
    threads_asked = query.software.threads if cores is None else query.software.threads_on(cores)
    threads = float(threads_asked or usual or cores or 1)
    return threads if cores is None else min(threads, float(cores))


def structure_of(graph: OperatorGraph) -> str:
    """A hash of a graph that does not depend on the batch size.

    It covers kinds, weights, attributes, connections and shapes without their first dimension.
    """
    return _structure(GraphKey(graph))


@kept_by_graph(4 * OPERATORS_KEPT)
def _structure(key: GraphKey) -> str:
    if len(key.graph) == 1:
        # A single operator has no batch dimension, so all its dimensions count.
        return key.graph.digest
    content = [
        (
            op.kind,
            op.parameter_elements,
            sorted((k, str(v)) for k, v in op.attributes.items()),
            [s[1:] if op.batched else s for s in op.output_shapes],
            op.inputs,
        )
        for op in key.graph.operators
    ]
    return hashlib.sha256(repr(content).encode()).hexdigest()[:16]


def sheet_shift(device: Device) -> Column:
    """Shift of the prior mean of log seconds per unit, (2 * COUNT,), zero for the slopes.

    Figures estimated from measurements are ignored, because the measurements are used directly.
    """
    shift = np.zeros(2 * COUNT)
    peak = device.peak_tflops.get("fp32")
    estimated = _is_estimated(device, "peak_tflops.fp32")
    if peak is None or device.compute_units is None or estimated:
        return shift
    slower = log(PLAIN_CORE_TFLOPS / (peak / device.compute_units))
    for index, (_, term) in enumerate(COLUMNS):
        shift[index] = slower if term == "flops" else slower / 2
    return shift


def _is_network(query: Query) -> bool:
    return query.workload.kind == "network"


def _cache(query: Query) -> float:
    device = query.device
    if device.l2_mib is None or _is_estimated(device, "l2_mib"):
        return CACHE_BYTES
    # Other virtual machines and threads share the cache.
    return min(2 * CACHE_BYTES, device.l2_mib * 2**20 / 2)


def _is_estimated(device: Device, figure: str) -> bool:
    return device.sources.get(figure, "").startswith(ESTIMATED)


MIB = 2.0**20
METRIC = "peak_memory_mib"
_SHRINKAGE = 5.0
"""Zero-error pseudo-observations that shrink a device's offset."""


@dataclass(frozen=True)
class CpuMemory:
    """Peak memory as a sum over the session, weights and activations.

    The target is the process's peak memory minus its memory before loading the network, as measured
    by `forerun collect cpu`. Weights are in memory once as bytes of the file, once as tensors, and
    again where they are packed for matrix products, so their factor is fitted.

    Attributes:
        factors: (3,) MiB of a session, and factors on the MiB of weights and of live activations.
        spread: factor from the value to either bound, which covers nine of ten training rows.
        offsets: device name -> shrunken mean log error of the rows measured on it.
    """

    factors: Column = field(default_factory=lambda: np.array([5.0, 2.0, 1.2]))
    spread: float = 2.0
    offsets: dict[str, float] = field(default_factory=dict)

    def fit(self, measurements: Measurements) -> Self:
        """Fit the factors to networks by non-negative least squares of relative errors.

        With fewer than five networks, the factors are unchanged.

        Args:
            measurements: networks with `peak_memory_mib`; other rows are ignored.
        """
        rows, measured = _measured(measurements)
        if len(rows) < 5:
            return self
        parts = _parts(rows)
        from scipy.optimize import nnls

        factors, _ = nnls(parts / measured[:, None], np.ones(len(measured)))
        # Lower bounds keep the prediction for a small network away from zero.
        factors = np.maximum(factors, [1.0, 0.5, 0.1])
        errors = np.abs(np.log(measured / (parts @ factors)))
        return replace(self, factors=factors, spread=float(np.exp(np.quantile(errors, 0.92))))

    def adapt(self, measurements: Measurements) -> Self:
        """Estimate the offset of each device in the rows."""
        rows, measured = _measured(measurements)
        offsets = dict(self.offsets)
        for name, indices in groups_of(query.device.name for query in rows).items():
            expected = _parts([rows[index] for index in indices]) @ self.factors
            errors = np.log(measured[indices] / expected)
            offsets[name] = float(errors.sum() / (len(indices) + _SHRINKAGE))
        return replace(self, offsets=offsets)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Peak memory of networks in MiB, with bounds; NaN for single operators."""
        values = np.full(len(queries), np.nan)
        networks = [index for index, q in enumerate(queries) if q.workload.kind == "network"]
        if networks:
            selected = [queries[index] for index in networks]
            offset = np.array([self.offsets.get(query.device.name, 0.0) for query in selected])
            values[networks] = _parts(selected) @ self.factors * np.exp(offset)
        ends = (values / self.spread, values * self.spread)
        return Predictions.of_metric(METRIC, values, ends, coverage=LEVEL)


def _measured(measurements: Measurements) -> tuple[list[Query], Column]:
    """The networks with a measured peak memory, and that memory in MiB."""
    values = measurements.values.get(METRIC, np.full(len(measurements), np.nan))
    known = np.flatnonzero(np.isfinite(values) & (values > 0)).tolist()
    kept = [row for row in known if measurements.queries[row].workload.kind == "network"]
    return [measurements.queries[row] for row in kept], values[kept]


def _parts(queries: Sequence[Query]) -> Matrix:
    """The columns 1, MiB of weights, and MiB of live activations at their peak, (n, 3)."""
    rows = []
    for query in queries:
        run = query.run
        assert isinstance(run, Network)
        weights, activations = _sizes(GraphKey(run.graph))
        rows.append((1.0, weights, activations * run.batch_size / run.graph.batch_size))
    return np.array(rows)


@kept_by_graph()
def _sizes(key: GraphKey) -> tuple[float, float]:
    """MiB of weights, and of activations at their peak at the graph's own batch size."""
    graph = key.graph
    weights = graph.parameter_elements or sum(o.parameter_elements for o in graph.operators)
    requests = inference_requests(graph)
    parts = requests.peak_parts(requests.sizes(1.0))
    return weights * 4.0 * graph.narrowed(4.0) / MIB, parts["activations"] / MIB


_FEWEST_HELD_OUT = 10
"""Measured networks from which leave-one-out errors on the device itself scale the intervals."""
ENOUGH_NETWORKS = 5
"""Measured networks from which the rates count as the device's own."""
_RARE = 0.15
"""Share of the time in node kinds without training rows above which a limit is reported."""
_THREAD_SLOPES = {"flops": -0.65, "fixed": 0.0, "join": 0.35}
_WIDE = StandardDeviations(0.7, 0.5, 0.5, 0.7, 0.6)
"""Prior deviations around `UNITS` when fitting: much wider than differences between CPUs, so that
the data dominate."""


@dataclass(frozen=True)
class CpuLatency(StoredPredictor):
    """Latency and peak memory of networks run by onnxruntime on CPUs.

    Attributes:
        prior: distribution of rates over CPUs; None before `fit`.
        memory: model of the peak memory.
        factor: half-width of intervals in standard deviations, which covered `LEVEL` of held-out
            training networks.
        measured_kinds: kinds of work in the training rows.
        devices: device name -> rows measured on it.
    """

    prior: RatePrior | None = None
    memory: CpuMemory = field(default_factory=CpuMemory)
    factor: float = HALF_WIDTH
    measured_kinds: tuple[str, ...] = ()
    devices: Mapping[str, RateRows] = field(default_factory=dict)
    name: ClassVar[str] = "cpu_latency"
    metrics: ClassVar[tuple[str, ...]] = ("latency_ms", "peak_memory_mib")
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {
        "columns": [f"{kind} {term}" for kind, term in COLUMNS]
    }
    needs_no_sheet: ClassVar[bool] = True
    """Predictions do not depend on an estimated spec sheet, so such a sheet does not limit them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_posteriors", {})

    def answers(self, query: Query) -> bool:
        """Whether the query is inference in fp32 by onnxruntime on a CPU."""
        return (
            query.device.kind == "cpu"
            and isinstance(query.workload, OperatorWorkload)
            and query.software.runtime == "onnxruntime"
            and query.run.precision == "fp32"
            and phase_of(query.run) == "inference"
        )

    def fit(self, measurements: Measurements) -> Self:
        """Fit the prior of the rates, the memory model and the width of intervals.

        Args:
            measurements: networks and operators with `latency_ms`, networks with
                `peak_memory_mib`; NaN is ignored. Rows of other frameworks than ONNX Runtime only
                teach how the time falls with the threads.
        """
        start = np.concatenate([np.log(UNITS * 1e3), _slopes()])
        own = np.array([q.software.framework == "onnxruntime" for q in measurements.queries])
        own |= not own.any()
        scaling = _by_device(measurements.take(np.flatnonzero(~own)))
        measurements = measurements.take(np.flatnonzero(own))
        rows = _by_device(measurements)
        prior = fitted_prior(list(rows.values()), start, _WIDE, list(scaling.values()))
        fitted = replace(
            self, prior=prior, memory=self.memory.fit(measurements), devices={}, factor=HALF_WIDTH
        )
        total = np.sum([device.amounts.sum(axis=0) for device in rows.values()], axis=0)
        kinds = tuple(dict.fromkeys(k for (k, _), v in zip(COLUMNS, total, strict=True) if v > 0))
        errors = [
            RatePosterior(prior, device, np.zeros(2 * COUNT)).held_out() for device in rows.values()
        ]
        ratios = np.concatenate([np.abs(error) / deviation for error, deviation in errors])
        factor = conformal_quantile(ratios, LEVEL)
        return replace(fitted, measured_kinds=kinds, factor=factor)

    def adapt(self, measurements: Measurements) -> Self:
        """Add rows to the support sets of their devices; identical rows count once."""
        devices = dict(self.devices)
        for name, rows in _by_device(measurements).items():
            known = devices.get(name, NO_ROWS)
            devices[name] = RateRows.concatenate([known, rows]).unique()
        return replace(self, devices=devices, memory=self.memory.adapt(measurements))

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Latency with interval, limits and breakdown, and peak memory of networks."""
        assert self.prior is not None
        answer = PredictionColumns(len(queries), self.metrics)
        for rows in groups_of(query.device.name for query in queries).values():
            answer.put(rows, self._on_device([queries[row] for row in rows]))
        answer.put(range(len(queries)), self.memory.predict(queries))
        return answer.predictions()

    def operator_times(self, query: Query) -> list[OperatorTime]:
        """Time of each node that onnxruntime runs, in the classes of the breakdown.

        A node's memory traffic beyond the caches, and its fixed time, have separate classes.
        """
        unit_ms = self._posterior(query).unit_ms(float(self._rows([query]).doublings[0]))
        amounts, owners, repeats = node_amounts(query)
        names = sorted({CLASS_OF.get(kind, "other") for kind, _ in COLUMNS})
        in_class = np.array([[CLASS_OF.get(k, "other") == n for n in names] for k, _ in COLUMNS])
        by_class = (amounts * unit_ms) @ in_class
        rows, classes = np.nonzero(by_class)
        times = merged_times(
            [operator_label(owners[row]) for row in rows],
            [names[place] for place in classes],
            repeats[rows],
            by_class[rows, classes],
        )
        run = float(unit_ms[COLUMNS.index(("fixed", "run"))])
        return [*times, OperatorTime("start of a run", CLASS_OF["fixed"], 1.0, run)]

    def suggest(self, queries: Sequence[Query], count: int, seed: int = 0) -> list[int]:
        """Positions of the `count` queries that are most informative to measure.

        They are chosen greedily by how much a measurement lowers the variance of all queries in the
        linearised model. The choice is deterministic: `seed` has no effect.
        """
        assert self.prior is not None
        posterior, rows = self._posterior(queries[0]), self._rows(queries)
        return posterior.most_informative(rows, count)

    def _on_device(self, queries: Sequence[Query]) -> Predictions:
        """Latency of queries on one device."""
        posterior, rows = self._posterior(queries[0]), self._rows(queries)
        mean, deviation = posterior.predict(rows)
        factor, covered = self._calibration(queries[0])
        half_width = factor * np.hypot(deviation, MEASURING)
        floor = posterior.floor_ms(rows)
        values = np.maximum(np.exp(mean), floor)
        low, high = np.maximum(np.exp(mean - half_width), floor), np.exp(mean + half_width)
        coverage = np.full(len(rows), covered)
        for index in range(len(rows)):
            repeats = _repeats(posterior.rows, rows, index)
            if len(repeats):
                values[index], low[index], high[index] = _as_measured(repeats)
                coverage[index] = LEVEL
        shares = posterior.shares(rows)
        return Predictions.of_metric(
            "latency_ms",
            values,
            (low, np.maximum(high, values)),
            coverage=LEVEL,
            row_coverage={"latency_ms": coverage},
            limits=[self._limits(q, share) for q, share in zip(queries, shares, strict=True)],
            breakdowns_ms=[_breakdown(*row) for row in zip(shares, values.tolist(), strict=True)],
        )

    def _rows(self, queries: Sequence[Query]) -> RateRows:
        """Queries on one device as rows; threads default to the median of its measured rows."""
        known = self.devices.get(queries[0].device.name)
        usual = None if known is None else float(2 ** np.median(known.doublings))
        return latency_rows(queries, usual)

    def _posterior(self, query: Query) -> RatePosterior:
        assert self.prior is not None
        cache: dict[Any, RatePosterior] = self.__dict__["_posteriors"]
        shift = sheet_shift(query.device)
        key = (query.device.name, float(shift[0]))
        if key not in cache:
            rows = self.devices.get(query.device.name, NO_ROWS)
            cache[key] = RatePosterior(self.prior, rows, shift)
        return cache[key]

    def _calibration(self, query: Query) -> tuple[float, float]:
        """Half-width of intervals in standard deviations, and their coverage on the device.

        The coverage is that of leave-one-out intervals: each network is compared with the width
        derived from the other networks.
        """
        posterior = self._posterior(query)
        networks = int(posterior.rows.whole.sum())
        if networks < _FEWEST_HELD_OUT:
            return self.factor, LEVEL
        errors, deviations = posterior.held_out()
        ratios = np.abs(errors) / deviations
        inside = [
            ratio <= max(self.factor, conformal_quantile(np.delete(ratios, index), LEVEL))
            for index, ratio in enumerate(ratios)
        ]
        return max(self.factor, conformal_quantile(ratios, LEVEL)), float(np.mean(inside))

    def _limits(self, query: Query, share: Column) -> tuple[Limit, ...]:
        rows = self.devices.get(query.device.name, NO_ROWS)
        lines = []
        networks = len(set(rows.structures[rows.whole]))
        if networks < ENOUGH_NETWORKS:
            lines.append(
                f"latency: {networks} networks were measured on this processor; its rates are "
                "mostly those of others (`forerun collect cpu --quick` measures it)"
            )
        unknown: dict[str, float] = {}
        for (kind, _), part in zip(COLUMNS, share, strict=True):
            if kind not in self.measured_kinds:
                unknown[kind] = unknown.get(kind, 0.0) + float(part)
        lines += [
            f"latency: {100 * part:.0f} % of the time is in nodes of kind {kind!r}, which no "
            "training row has"
            for kind, part in unknown.items()
            if part > _RARE
        ]
        return tuple(Limit(line, LATENCY) for line in lines)


MEASURING = 0.03
"""Relative standard deviation between two measurements of a network, minutes apart on a quiet
machine."""
_SESSIONS = 0.06
"""Relative standard deviation between measurement sessions hours apart, the smallest that intervals
around measured runs assume."""
NO_ROWS = latency_rows([])


def _slopes() -> Column:
    """Initial change of log seconds per unit with each doubling of threads, (COUNT,)."""
    terms = [
        ("flops" if k in PRODUCTS else t if t == "join" else "fixed" if k == "fixed" else "")
        for k, t in COLUMNS
    ]
    return np.array([_THREAD_SLOPES.get(term, -0.3) for term in terms])


def _by_device(measurements: Measurements) -> dict[str, RateRows]:
    """Rows with a latency, by the device's name."""
    latency = measurements.values["latency_ms"]
    measured = measurements.take(np.isfinite(latency) & (latency > 0))
    rows = {}
    for name, positions in groups_of(query.device.name for query in measured.queries).items():
        of_device = measured.take(positions)
        weights = (
            np.ones(len(of_device))
            if of_device.weights is None
            else np.clip(of_device.weights, 0.01, 1.0)
        )
        log_ms = np.log(of_device.values["latency_ms"])
        rows[name] = latency_rows(
            of_device.queries, log_ms=log_ms, noise=MEASURING / np.sqrt(weights)
        )
    return rows


def _repeats(known: RateRows, queried: RateRows, index: int) -> RateRows:
    """Measured rows of the same graph, batch size and threads as a queried row."""
    same = known.structures == queried.structures[index]
    same &= known.log_size == queried.log_size[index]
    same &= known.doublings == queried.doublings[index]
    return known.take(same)


def _as_measured(repeats: RateRows) -> tuple[float, float, float]:
    """Median, lower and upper bound of repeated measurements, in milliseconds."""
    median = float(np.median(repeats.log_ms))
    deviation = max(_SESSIONS, float(np.median(repeats.noise)))
    if len(repeats) > 2:
        deviation = max(deviation, 1.48 * float(np.median(np.abs(repeats.log_ms - median))))
    reach = HALF_WIDTH * deviation
    return float(np.exp(median)), float(np.exp(median - reach)), float(np.exp(median + reach))


def _breakdown(share: Column, value: float) -> dict[str, float]:
    """Operator class -> milliseconds."""
    by_class: dict[str, float] = {}
    for (kind, _), part in zip(COLUMNS, share, strict=True):
        if part > 0:
            name = CLASS_OF.get(kind, "other")
            by_class[name] = by_class.get(name, 0.0) + float(part) * value
    return by_class


CLASS_OF: Mapping[str, str] = {
    **dict.fromkeys((k for k in PRODUCTS if k.startswith("conv")), "conv"),
    **{"gemm": "linear", "bmm": "bmm", "attention": "attention", "recurrent": "recurrent"},
    **dict.fromkeys(
        ("add", "broadcast", "cheap", "exponential", "erf", "neighbourhood"), "elementwise"
    ),
    **{"softmax": "softmax", "layer_norm": "norm", "batch_norm": "norm", "pool": "pool"},
    **{"mean": "reduce", "reduce": "reduce", "unknown": "unknown"},
    **dict.fromkeys(("concat", "transpose", "gather", "resize", "reorder", "copy"), "copy"),
    **{"memory": "copy", "fixed": "overhead"},
}
"""Node kind -> operator class; memory traffic beyond the caches counts as `copy`, and the fixed
times of nodes and of a run as `overhead`."""
