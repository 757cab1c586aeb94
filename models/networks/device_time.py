"""Device time of networks on GPUs, from the predictors of whole networks and of their kernels.

Eager inference in full precision on vector units is predicted as the sum of its kernels, which were
measured so; half precision, TF32, compiled networks and training steps by the predictor of whole
networks. Neither was trained on batches that do not fill the device; these are scaled by the sum
over kernels (`batch_interpolation`). Both answer networks without their recurrent layers, whose
time (`recurrent_law`) is added.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import log2, sqrt
from typing import NamedTuple

import numpy as np

from forerun.data.columns import Column, groups_of
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.level import HALF_WIDTH
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.graph_cache import GraphKey, kept_by_graph
from forerun.features.lowering import Kernels, lowered, lowering_mode
from forerun.features.lowering.mode import casts_of
from forerun.features.networks.features import chip_of, network_features
from forerun.features.networks.kernel_floor import SHORTEST_KERNEL_S
from forerun.features.operators.query_table import query_table
from forerun.features.recent import Recent
from forerun.models.equal_runs import RunKey, equal_but_batch, on_any_device
from forerun.models.limit import Limit
from forerun.models.networks.additive_model import execution_mode
from forerun.models.networks.batch_interpolation import (
    POWERS,
    batch_ladder,
    filling_batch,
    law_seconds,
)
from forerun.models.networks.booster import NetworkBoost
from forerun.models.operators.booster import OperatorBoost
from forerun.models.operators.operator_times import OperatorTime
from forerun.models.operators.recurrent_law import (
    HELD_OUT_REACH,
    LAW,
    RECURRENT,
    recurrent_limits,
)

NARROW = ("fp8", "int8")
"""Precisions without a measured network."""
NETWORKS, OPERATORS = "networks", "operators"
"""Names of the predictors in `DeviceTime.parts`."""
LAWS_KEPT = 2_000
ANSWERS_KEPT = 10_000
"""Answers at filling batches that are kept; networks of many batch sizes share them."""
DOUBLING_DEVIATION = 0.1
"""Standard deviation of the logarithm that each halving of the batch size below the filling batch
adds in quadrature. An engineering estimate, corrected by interval widths that are fitted on
published tables (`NetworkLatency.widths`)."""


class DeviceTimes(NamedTuple):
    """Device times of n networks.

    Attributes:
        seconds: (n,) predicted device time.
        low, high: (n,) distances of the interval's bounds from the logarithm of `seconds`.
        limits: what is outside the training range, for each network.
        breakdowns: for each network, operator class -> ms; these add up to `seconds`.
    """

    seconds: Column
    low: Column
    high: Column
    limits: list[tuple[Limit, ...]]
    breakdowns: list[Mapping[str, float]]


class _Answer(NamedTuple):
    """The answer of a predictor of device time to one query, milliseconds."""

    value: float
    low: float
    high: float
    limits: tuple[Limit, ...]
    breakdown_ms: Mapping[str, float]


class _Request(NamedTuple):
    """One query to a predictor of device time, and the weight of its prediction.

    Attributes:
        row: index of the network that the query is for.
        source: name of the predictor in `DeviceTime.parts`.
        key: equal for queries with equal answers.
        like: a query that differs from this one in its batch size alone.
        batch_size: samples in one run, which fill the device.
        factor: ratio of the kernels' summed time at the queried batch size to that of `query`.
        weight: weight in the mean of logarithms over the requests of a row; these add up to 1.
        extra: standard deviation of the logarithm that the change of batch size adds.
    """

    row: int
    source: str
    key: RunKey
    like: Query
    batch_size: int
    factor: float
    weight: float
    extra: float

    @property
    def query(self) -> Query:
        """The network at a batch size that fills the device."""
        network = replace(self.like.network, batch_size=self.batch_size)
        return replace(self.like, workload=network)


@dataclass(frozen=True)
class DeviceTime:
    """The device's part of the latency of networks on GPUs.

    Attributes:
        networks: predictor of whole networks.
        operators: predictor of networks as the sum of their kernels.
    """

    networks: NetworkBoost
    operators: OperatorBoost

    @property
    def parts(self) -> Mapping[str, NetworkBoost | OperatorBoost]:
        """Both predictors by name."""
        return {NETWORKS: self.networks, OPERATORS: self.operators}

    def predict(self, queries: Sequence[Query]) -> DeviceTimes:
        """Device times of n networks on GPUs, with bounds.

        Raises:
            UnknownPrecision: a device's sheet has no peak for a query's precision.
        """
        rests = [_rest_of(GraphKey(query.network.graph)) for query in queries]
        whole = [rest is None for rest in rests]
        if all(whole):
            return self._without_recurrent(queries)
        pairs = zip(rests, queries, strict=True)
        graphs = [query.network.graph if rest is None else rest for rest, query in pairs]
        kept = [row for row, graph in enumerate(graphs) if graph.operators]
        asked = [_with_graph(queries[row], graphs[row]) for row in kept]
        seconds, low, high = np.zeros((3, len(queries)))
        times = DeviceTimes(seconds, low, high, [()] * len(queries), [{}] * len(queries))
        rest = self._without_recurrent(asked)
        seconds[kept], low[kept], high[kept] = rest.seconds, rest.low, rest.high
        for place, row in enumerate(kept):
            times.limits[row], times.breakdowns[row] = rest.limits[place], rest.breakdowns[place]
        for row in np.flatnonzero(~np.array(whole)).tolist():
            _add_recurrent(times, row, queries[row])
        return times

    def _without_recurrent(self, queries: Sequence[Query]) -> DeviceTimes:
        """Device times of n networks on GPUs that have operators, none of them recurrent."""
        n = len(queries)
        logs, below, above, extra = np.zeros((4, n))
        limits: list[tuple[Limit, ...]] = [()] * n
        breakdowns: list[Mapping[str, float]] = [{}] * n
        for source, selected in self._by_source(queries):
            asked = {request.key: request for request in selected}
            places = {key: place for place, key in enumerate(asked)}
            index = [places[request.key] for request in selected]
            answers = self._at_filling_batches(source, asked)
            value, low, high = map(np.array, list(zip(*answers, strict=True))[:3])
            rows = [request.row for request in selected]
            weight = np.array([request.weight for request in selected])
            factor = np.array([request.factor for request in selected])
            ratios = np.log([value / low, high / value])[:, index]
            logs += np.bincount(rows, weight * np.log(value[index] / 1e3 * factor), n)
            below += np.bincount(rows, weight * ratios[0], n)
            above += np.bincount(rows, weight * ratios[1], n)
            extra[rows] = [request.extra for request in selected]
            for row, place in zip(rows, index, strict=True):
                limits[row], breakdowns[row] = answers[place].limits, answers[place].breakdown_ms
        least = np.array([self._least_s(query) for query in queries])
        seconds, reach = np.maximum(np.exp(logs), least), HALF_WIDTH * extra
        scaled = zip(breakdowns, (seconds * 1e3).tolist(), strict=True)
        return DeviceTimes(
            seconds,
            np.hypot(below, reach),
            np.hypot(above, reach),
            limits,
            [_scaled(breakdown, ms) for breakdown, ms in scaled],
        )

    def _least_s(self, query: Query) -> float:
        """Seconds of a network's launches; its roofline on GPUs without timed networks.

        What was learned on other GPUs carries no answer below that.
        """
        launches = SHORTEST_KERNEL_S * _kernels(query).launches
        timed = query.device in self.networks.domain.known
        return launches if timed else max(launches, roofline_s(query))

    def operator_times(self, query: Query) -> list[OperatorTime]:
        """Time of each operator of a network, from the predictor whose classes are returned."""
        return self.parts[_source(query)].operator_times(query)

    def at_filling_batches(
        self, networks: Measurements, seconds: Column
    ) -> dict[str, Measurements]:
        """Measured rows scaled to the batch sizes at which the predictors are evaluated.

        Args:
            networks: n networks on GPUs.
            seconds: (n,) device time of each.

        Returns:
            Name of a predictor -> rows at the batch sizes of its queries, with `seconds` scaled by
            the sum over kernels to these batch sizes.
        """
        # Adaptation leaves out networks with recurrent layers, whose time the formula alone gives.
        keys = [GraphKey(query.network.graph) for query in networks.queries]
        whole = np.array([_rest_of(key) is None for key in keys], dtype=np.bool_)
        networks, seconds = networks.take(whole), seconds[whole]
        rows = {}
        for source, selected in self._by_source(networks.queries):
            taken = networks.take([request.row for request in selected])
            filled = np.array([seconds[r.row] / r.factor for r in selected])
            queries = [request.query for request in selected]
            rows[source] = replace(taken, queries=queries, values={"latency_ms": filled * 1e3})
        return rows

    def _at_filling_batches(self, source: str, asked: Mapping[RunKey, _Request]) -> list[_Answer]:
        """Answers of a predictor to requests by key; those of earlier calls are kept."""
        requests = list(asked.values())

        def compute(missing: list[int]) -> list[_Answer]:
            answer = self.parts[source].predict([requests[place].query for place in missing])
            value = answer.values["latency_ms"]
            low, high = (side.get("latency_ms", value) for side in (answer.low, answer.high))
            columns = (value.tolist(), low.tolist(), high.tolist())
            return list(map(_Answer, *columns, answer.limits, answer.breakdowns_ms))

        return self._recent.of_each([(source, *key) for key in asked], compute)

    @cached_property
    def _laws(self) -> Recent[RunKey, Mapping[int, float]]:
        """Seconds of all kernels at the powers of two."""
        return Recent(LAWS_KEPT)

    @cached_property
    def _recent(self) -> Recent[RunKey, _Answer]:
        return Recent(ANSWERS_KEPT)

    def _by_source(self, queries: Sequence[Query]) -> Iterator[tuple[str, list[_Request]]]:
        """Each predictor with the queries to it, `NETWORKS` first."""
        alike = equal_but_batch(queries)
        laws = self._laws_of(queries, alike)
        requests = [
            request
            for (key, rows), law in zip(alike.items(), laws, strict=True)
            for request in _requests(queries, key, rows, law)
        ]
        requests.sort(key=lambda request: request.row)
        for source, own in sorted(groups_of(request.source for request in requests).items()):
            yield source, [requests[index] for index in own]

    def _laws_of(
        self, queries: Sequence[Query], alike: Mapping[RunKey, Sequence[int]]
    ) -> list[Mapping[int, float]]:
        """For each key, batch size -> seconds of all kernels: of `POWERS`, and as asked."""
        firsts = [queries[rows[0]] for rows in alike.values()]
        laws = self._laws.of_each(
            list(alike),
            lambda missing: self._laws_at(
                [firsts[place] for place in missing], [POWERS] * len(missing)
            ),
        )
        others = [
            sorted(_batches(queries, rows, filling_batch(law)) - law.keys())
            for rows, law in zip(alike.values(), laws, strict=True)
        ]
        lacking = [place for place, own in enumerate(others) if own]
        found = self._laws_at([firsts[p] for p in lacking], [others[p] for p in lacking])
        for place, law in zip(lacking, found, strict=True):
            laws[place] = {**laws[place], **law}
        return laws

    def _laws_at(
        self, queries: Sequence[Query], sizes: Sequence[Sequence[int]]
    ) -> list[Mapping[int, float]]:
        """For each query, batch size -> seconds; devices of one network in one call.

        Args:
            queries: n networks.
            sizes: batch sizes of each.
        """
        times = self.networks.kernel_times
        laws: dict[int, Mapping[int, float]] = {}
        pairs = zip(queries, sizes, strict=True)
        for rows in groups_of((on_any_device(q), tuple(s)) for q, s in pairs).values():
            first, own = queries[rows[0]], sizes[rows[0]]
            chips = [chip_of(queries[row].device, first.network.precision) for row in rows]
            batches = np.array(own, dtype=np.float64)
            seconds = law_seconds(times, _kernels(first), chips, batches, _mode(first))
            for row, line in zip(rows, seconds.tolist(), strict=True):
                laws[row] = dict(zip(own, line, strict=True))
        return [laws[row] for row in range(len(queries))]


def _requests(
    queries: Sequence[Query], key: RunKey, rows: Sequence[int], law: Mapping[int, float]
) -> Iterator[_Request]:
    """The queries to the predictors for networks that differ in their batch size alone."""
    query = queries[rows[0]]
    filled, source = filling_batch(law), _source(query)
    for row in rows:
        own = queries[row].network.batch_size
        extra = DOUBLING_DEVIATION * sqrt(max(0.0, log2(filled / own)))
        for batch, share in batch_ladder(own, filled).items():
            factor = law[own] / law[batch]
            yield _Request(row, source, (*key, batch), query, batch, factor, share, extra)


def _batches(queries: Sequence[Query], rows: Sequence[int], filled: int) -> set[int]:
    """The batch sizes of these rows, and those at which a predictor is evaluated for them."""
    own = {queries[row].network.batch_size for row in rows}
    return own.union(*(batch_ladder(batch, filled) for batch in own))


@kept_by_graph()
def _rest_of(key: GraphKey) -> OperatorGraph | None:
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


def _with_graph(query: Query, graph: OperatorGraph) -> Query:
    return replace(query, workload=replace(query.network, graph=graph))


def _add_recurrent(times: DeviceTimes, row: int, query: Query) -> None:
    """Add the recurrent layers of a network to the times of its other operators."""
    table = query_table(query.network)
    layers = table.take(table.kind == RECURRENT)
    own = LAW.seconds(layers, query.device, query.network.precision) * layers.repeat
    seconds = float(own.sum())
    share = seconds / (times.seconds[row] + seconds)
    for side in (times.low, times.high):
        side[row] = np.hypot((1.0 - share) * side[row], share * HELD_OUT_REACH)
    times.seconds[row] += seconds
    times.breakdowns[row] = {**times.breakdowns[row], "recurrent": seconds * 1e3}
    times.limits[row] = (*times.limits[row], *recurrent_limits(share, query))


def _mode(query: Query) -> str:
    return "eager" if query.network.graph.training else execution_mode(query)


def _kernels(query: Query) -> Kernels:
    network = query.network
    return lowered(network.graph, lowering_mode(network.graph, network.precision, query.software))


def _source(query: Query) -> str:
    """Name of the predictor of a network's device time."""
    network = query.network
    if network.graph.training or network.precision in NARROW:
        return OPERATORS
    if query.software.fuses or casts_of(network.precision) != "fp32":
        return NETWORKS
    if network.phase == "training" or _on_tf32_units(query):
        return NETWORKS
    return OPERATORS


def _on_tf32_units(query: Query) -> bool:
    """Whether most work of an eager network in full precision is on TF32 units.

    Convolutions run there by default, other products only where TF32 is asked for.
    """
    if "tf32" not in query.device.peak_tflops:
        return False
    kernels = _kernels(query)
    convolutions = float(kernels.work[kernels.is_conv].sum())
    return query.network.precision == "tf32" or convolutions > 0.5 * float(kernels.work.sum())


def _scaled(breakdown: Mapping[str, float], total_ms: float) -> Mapping[str, float]:
    whole = sum(breakdown.values())
    return {k: v * total_ms / whole for k, v in breakdown.items()} if whole > 0 else {}


def roofline_s(query: Query) -> float:
    """Sum of the rooflines of a network's kernels, seconds."""
    chip = chip_of(query.device, query.network.precision)
    return network_features(_kernels(query), chip, query.network, query.software)[1]
