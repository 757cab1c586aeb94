"""Predicts the latency of networks on GPUs from device time and host time.

A predictor fitted on measured networks and kernels gives the device time (`DeviceTime`), a mixed
model the host time (`HostTime`). Device and host overlap, so the latency is little more than the
longer of the two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from forerun.data.columns import Column, Mask, Names, groups_of
from forerun.data.level import HALF_WIDTH, LEVEL
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.features.links import data_messages_s
from forerun.features.lowering import lowered
from forerun.features.lowering.mode import lowering_mode
from forerun.models.adaptation.support_gp import SupportGP
from forerun.models.adaptation.support_set import in_turns
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import group_weights, weighted_quantile
from forerun.models.kernel_experts.operators import OperatorBoost
from forerun.models.llm_training.rates import not_hidden
from forerun.models.networks.device_time import DeviceTime
from forerun.models.networks.host_time import OVERLAP, TERMS, HostTime
from forerun.models.prediction import OperatorTime, PredictionColumns, Predictions
from forerun.models.predictor import SETTING, Predictor

UNSURE = 2.0
"""Possible error factor of the time of messages between devices, which no network measured."""
HOST_BOUND = 0.7
"""Predicted device time over measured latency below which a row counts as host-bound."""
CLEAR_OF_HOST = 0.9
"""Predicted host time over measured latency below which a row informs the device time."""


@dataclass(frozen=True)
class NetworkLatency(StoredPredictor):
    """Latency of networks from device and host time, and of single operators.

    Attributes:
        device: predicts device times of networks, of operators on GPUs with operators in its
            training set, and latencies of networks on CPUs.
        operators: predicts all other operators.
        host: model of the host time.
        widths: factors on interval half-widths for device-bound and for host-bound runs.
    """

    device: DeviceTime = field(default_factory=DeviceTime, metadata=SETTING)
    operators: OperatorBoost = field(default_factory=OperatorBoost, metadata=SETTING)
    host: HostTime = field(default_factory=HostTime)
    widths: tuple[float, float] = (1.0, 1.0)
    name: ClassVar[str] = "network_latency"
    metrics: ClassVar[tuple[str, ...]] = ("latency_ms",)
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {"terms of the host's time": tuple(TERMS)}

    def answers(self, query: Query) -> bool:
        """Whether either predictor of device time answers the query."""
        return self.device.answers(query) or self.operators.answers(query)

    def fit(self, measurements: Measurements) -> Self:
        """Fit the host time to host-bound runs, and the widths of intervals.

        The predictors of device time are not refitted.

        Args:
            measurements: networks with `latency_ms`. Rows with equal values of the group `host`
                share a host; without that group, rows of one device do.
        """
        on_gpu, _, _ = _by_device_kind(measurements)
        devices = np.array([q.device.name for q in on_gpu.queries], dtype=np.str_)
        bound, seconds = self._host_bound(on_gpu)
        fitted = replace(self, widths=self._widths(on_gpu, devices))
        if not bound.any():
            return fitted
        hosts = on_gpu.groups.get("host", devices)[bound].tolist()
        host = HostTime().fit(on_gpu.take(bound).queries, seconds[bound], hosts)
        return replace(fitted, host=host)

    def _widths(self, on_gpu: Measurements, devices: Names) -> tuple[float, float]:
        """Half-width factors with which intervals cover nine of ten rows.

        Rows are predicted without adapting to them, every family has the same weight, and no
        interval is narrowed. The finite-sample correction of split conformal prediction for the
        dozen families is omitted: with it, 97 to 100 % of held-out families were covered.
        """
        device = self._device_times(on_gpu.queries)
        host, host_deviation = self.host.seconds(on_gpu.queries)
        value, low, high = _joined(device, host, host_deviation)
        error = np.log(on_gpu.values["latency_ms"] / 1e3 / value)
        half_width = np.where(error < 0, np.log(value / low), np.log(high / value))
        scores = np.abs(error) / half_width
        family = on_gpu.groups.get("family", devices)
        device_bound = device.values["latency_ms"] / 1e3 >= host
        return (
            _at_least_one(scores[device_bound], family[device_bound]),
            _at_least_one(scores[~device_bound], family[~device_bound]),
        )

    def with_parts(self, parts: Mapping[str, Predictor]) -> Self:
        """The predictor with these predictors of device time, before `fit`."""
        device, operators = parts[DeviceTime.name], parts[OperatorBoost.name]
        assert isinstance(device, DeviceTime)
        assert isinstance(operators, OperatorBoost)
        return replace(self, device=device, operators=operators).without_published()

    def without_published(self) -> Self:
        """The predictor without what `fit` and `adapt` added to its device-time predictors."""
        return replace(
            self,
            device=self.device.unadapted(),
            operators=replace(self.operators, support=SupportGP(), networks=SupportGP()),
            host=HostTime(),
            widths=(1.0, 1.0),
        )

    def adapt(self, measurements: Measurements) -> Self:
        """Adapt the host time to host-bound runs and the device time to all others.

        `device` first learns kernel times from operators of a new GPU.
        """
        on_gpu, on_cpu, others = _by_device_kind(measurements)
        learnt = np.array([*map(self.learns, others.queries)], dtype=np.bool_)
        if learnt.any():
            device = self.device.adapt(others.take(learnt))
            return replace(self, device=device)._adapted(on_gpu, on_cpu, others)
        return self._adapted(on_gpu, on_cpu, others)

    def _adapted(self, on_gpu: Measurements, on_cpu: Measurements, others: Measurements) -> Self:
        bound, seconds = self._host_bound(on_gpu)
        host = self.host
        if bound.any():
            host = host.adapt(on_gpu.take(bound).queries, seconds[bound])
        rows = _without_host(on_gpu.take(~bound), host) + on_cpu + others
        by_device = np.array([self._by_device(query) for query in rows.queries], dtype=np.bool_)
        device, operators = self.device, self.operators
        if by_device.any():
            device = device.adapt(rows.take(by_device))
        if not by_device.all():
            operators = operators.adapt(rows.take(~by_device))
        return replace(self, host=host, device=device, operators=operators)

    def learns(self, query: Query) -> bool:
        """Whether measuring this operator improves predictions of networks on its device."""
        return self.device.learns_kernels(query)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Latency from device and host time, never below either.

        Raises:
            UnknownPrecision: a device's sheet has no peak for a query's precision.
        """
        answer = PredictionColumns(len(queries), self.metrics)
        kinds = groups_of((self._by_device(query), _runs_on_gpu(query)) for query in queries)
        for (by_device, on_gpu), rows in kinds.items():
            members = [queries[row] for row in rows]
            predicted = self._device_time(members, by_device)
            answer.put(rows, self._with_host(members, predicted) if on_gpu else predicted)
        return answer.predictions()

    def operator_times(self, query: Query) -> list[OperatorTime]:
        """Device time of each operator, from the predictor that gives the breakdown."""
        return self._part(self._by_device(query)).operator_times(query)

    def suggest(self, queries: Sequence[Query], count: int, seed: int = 0) -> list[int]:
        """Positions of the workloads that are most informative to measure on a new device.

        The two predictors choose alternately among the queries that each answers.
        """
        chosen = []
        for by_device, rows in sorted(groups_of(map(self._by_device, queries)).items()):
            suggested = self._part(by_device).suggest([queries[row] for row in rows], count, seed)
            chosen.append([rows[index] for index in suggested])
        return in_turns(chosen)[:count]

    def _with_host(self, queries: Sequence[Query], device: Predictions) -> Predictions:
        """Latency of networks on GPUs from their device time and the host time."""
        value, low, high = _joined(device, *self.host.seconds(queries), self.widths)
        host_ms = np.maximum(value * 1e3 - device.values["latency_ms"], 0.0).tolist()
        shown = _messages_s(queries, value)
        value, low, high = value + shown, low + shown / UNSURE, high + UNSURE * shown
        breakdowns = zip(device.breakdowns_ms, host_ms, (1e3 * shown).tolist(), strict=True)
        return Predictions.of_metric(
            "latency_ms",
            value * 1e3,
            (low * 1e3, high * 1e3),
            coverage=LEVEL,
            limits=device.limits,
            breakdowns_ms=[
                {**breakdown, "host": host, **({"messages": sent} if sent else {})}
                for breakdown, host, sent in breakdowns
            ],
        )

    def _device_times(self, queries: Sequence[Query]) -> Predictions:
        """Device time of n networks on GPUs."""
        answer = PredictionColumns(len(queries), self.metrics)
        for by_device, rows in groups_of(map(self._by_device, queries)).items():
            answer.put(rows, self._device_time([queries[row] for row in rows], by_device))
        return answer.predictions()

    def _device_time(self, queries: Sequence[Query], by_device: bool) -> Predictions:
        """Device time of n runs that one predictor answers.

        Without measured networks on the GPU, a fused run takes at most as long as the eager run
        that `operators` predicts; the ends of its interval are capped too.
        """
        predicted = self._part(by_device).predict(queries)
        fused = (
            row
            for row, query in enumerate(queries)
            if by_device and query.software.fuses and not self.device.support_gp.rows(query.device)
        )
        eager = {row: _eager(queries[row]) for row in fused}
        rows = [row for row, query in eager.items() if not self._by_device(query)]
        if not rows:
            return predicted
        return _at_most(predicted, rows, self.operators.predict([eager[row] for row in rows]))

    def _part(self, by_device: bool) -> DeviceTime | OperatorBoost:
        return self.device if by_device else self.operators

    def _by_device(self, query: Query) -> bool:
        """Whether `device` gives the device time of a query.

        Eager networks in full precision are sums of operators, measured in that mode on other GPUs,
        unless networks of this GPU were measured.
        """
        if not self.device.answers(query):
            return False
        known = query.device in self.device.domain.known
        return known or not (_in_full_precision(query) and self.operators.answers(query))

    def _host_bound(self, on_gpu: Measurements) -> tuple[Mask, Column]:
        """Which networks on GPUs are host-bound, and their host time in seconds; both (n,).

        The host time is the measured latency less the predicted device time, under the norm of
        order `OVERLAP`.
        """
        measured = on_gpu.values["latency_ms"] / 1e3
        device = self._device_times(on_gpu.queries).values["latency_ms"] / 1e3
        remainder = np.maximum(measured**OVERLAP - np.minimum(device, measured) ** OVERLAP, 0.0)
        seconds = remainder ** (1.0 / OVERLAP)
        plausible = HostTime().plausible(on_gpu.queries, seconds)
        return (device < HOST_BOUND * measured) & plausible, seconds


def _without_host(on_gpu: Measurements, host: HostTime) -> Measurements:
    """Networks that are not host-bound, with their device time as latency."""
    measured = on_gpu.values["latency_ms"] / 1e3
    host_s, _ = host.seconds(on_gpu.queries)
    clear = host_s < CLEAR_OF_HOST * measured
    powered = measured**OVERLAP - np.where(clear, host_s, 0.0) ** OVERLAP
    return replace(on_gpu, values={"latency_ms": powered ** (1.0 / OVERLAP) * 1e3})


def _eager(query: Query) -> Query:
    return replace(query, software=query.software.model_copy(update={"runtime": "eager"}))


def _at_most(predicted: Predictions, rows: Sequence[int], most: Predictions) -> Predictions:
    """Predictions of n runs, with k rows and the ends of their intervals capped."""
    sides: dict[str, Any] = {}
    for side in ("values", "low", "high"):
        sides[side] = {name: times.copy() for name, times in getattr(predicted, side).items()}
        for name, times in sides[side].items():
            times[rows] = np.minimum(times[rows], getattr(most, side).get(name, np.inf))
    factors = sides["values"]["latency_ms"] / predicted.values["latency_ms"]
    parts = zip(predicted.breakdowns_ms, factors.tolist(), strict=True)
    scaled = [{name: ms * factor for name, ms in breakdown.items()} for breakdown, factor in parts]
    return replace(predicted, **sides, breakdowns_ms=scaled)


def _runs_on_gpu(query: Query) -> bool:
    return query.workload.kind == "network" and query.device.kind == "gpu"


def _in_full_precision(query: Query) -> bool:
    """Whether a network runs eagerly in fp32 with most of its work outside TF32 units.

    Convolutions use TF32 by default where a GPU supports it, other products only on request.
    """
    if not _runs_on_gpu(query) or query.network.precision != "fp32":
        return False
    if query.software.fuses or query.network.phase == "training":
        return False
    if "tf32" not in query.device.peak_tflops:
        return True
    network = query.network
    mode = lowering_mode(network.graph, network.precision, query.software)
    kernels = lowered(network.graph, mode)
    convolutions = float(kernels.work[kernels.is_conv].sum())
    return convolutions <= 0.5 * float(kernels.work.sum())


def _by_device_kind(
    measurements: Measurements,
) -> tuple[Measurements, Measurements, Measurements]:
    """Networks with a latency on GPUs, those on other devices, and rows of other workloads."""
    network = np.array([q.workload.kind == "network" for q in measurements.queries], dtype=np.bool_)
    gpu = np.array([q.device.kind == "gpu" for q in measurements.queries], dtype=np.bool_)
    measured = network & (measurements.values["latency_ms"] > 0)
    masks = (measured & gpu, measured & ~gpu, ~network)
    on_gpu, on_cpu, others = (measurements.take(mask) for mask in masks)
    return on_gpu, on_cpu, others


def _at_least_one(scores: Column, groups: Names) -> float:
    """The `LEVEL` quantile of scores with equal weight for every group, at least 1."""
    if not len(scores):
        return 1.0
    return max(1.0, weighted_quantile(scores, group_weights(groups), LEVEL))


def _joined(
    device: Predictions,
    host_s: Column,
    host_deviation: Column,
    widths: tuple[float, float] = (1.0, 1.0),
) -> tuple[Column, Column, Column]:
    """Latency, low and high in seconds, each (n,); device and host errors count as independent."""
    seconds = device.values["latency_ms"] / 1e3
    low_s, high_s = (side["latency_ms"] / 1e3 for side in (device.low, device.high))
    powers, host = seconds**OVERLAP, host_s**OVERLAP
    value = (powers + host) ** (1.0 / OVERLAP)
    share = powers / (powers + host)
    half_width = HALF_WIDTH * host_deviation * (1.0 - share)
    factor = np.where(seconds >= host_s, *widths)
    low = value * np.exp(-factor * np.hypot(share * np.log(seconds / low_s), half_width))
    high = value * np.exp(factor * np.hypot(share * np.log(high_s / seconds), half_width))
    return value, low, high


def _messages_s(queries: Sequence[Query], busy: Column) -> Column:
    """Seconds of messages between data-parallel devices not hidden by n busy times, (n,)."""
    runs = [query.workload for query in queries]
    sent = [
        data_messages_s(run, query.device) if isinstance(run, Network) else 0.0
        for run, query in zip(runs, queries, strict=True)
    ]
    return not_hidden(np.array(sent), busy)
