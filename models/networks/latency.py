"""Latency of networks on GPUs at every precision, batch size and runtime: device and host time.

Predictors fitted on measured networks and kernels give the device time (`DeviceTime`), a mixed
model gives the host time (`HostTime`). Device and host work at the same time, so the latency is
little more than the longer of the two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import add
from typing import Any, ClassVar, Self

import numpy as np

from forerun.data.columns import Column, Mask, Names, groups_of
from forerun.data.level import HALF_WIDTH, LEVEL
from forerun.data.measurements import NO_HOST, Measurements
from forerun.data.query import Query
from forerun.models.adaptation.suggestions import in_turns
from forerun.models.adaptation.support_gp import SupportGP
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import group_weights, weighted_quantile
from forerun.models.estimator import SETTING
from forerun.models.networks.booster import NetworkBoost
from forerun.models.networks.device_time import (
    NETWORKS,
    OPERATORS,
    DeviceTime,
    DeviceTimes,
    roofline_s,
)
from forerun.models.networks.half_precision import HalfPrecision, MeasuredRuns, applies
from forerun.models.networks.host_time import TERMS, HostTime
from forerun.models.operators.booster import OperatorBoost
from forerun.models.operators.operator_times import OperatorTime
from forerun.models.prediction import PredictionColumns, Predictions
from forerun.models.predictor import Predictor

OVERLAP = 4.0
"""Order of the norm that joins device and host time: where both are equal, the latency is 19 %
longer than either. Published latencies of ResNet-50 rise as gently around the batch size at which
the device time exceeds the host time."""
HOST_BOUND = 0.7
"""Predicted device time over measured latency below which a row counts as waiting for the host."""
CLEAR_OF_HOST = 0.9
"""Predicted host time over measured latency below which a row informs about the device time."""


@dataclass(frozen=True)
class NetworkLatency(StoredPredictor):
    """Latency of networks from device and host time; single kernels go to `OperatorBoost`.

    Attributes:
        networks: predicts device times of networks, and latencies of networks on CPUs.
        operators: predicts device times of networks as sums of kernels, and single kernels.
        host: model of the host time.
        half_precision: correction of the device time on GPUs without timed networks.
        widths: factors on the half-widths of intervals: of runs with the longer device time that
            `half_precision` does not correct, and of runs with the longer host time.
    """

    networks: NetworkBoost = field(default_factory=NetworkBoost, metadata=SETTING)
    operators: OperatorBoost = field(default_factory=OperatorBoost, metadata=SETTING)
    host: HostTime = field(default_factory=HostTime)
    half_precision: HalfPrecision = field(default_factory=HalfPrecision)
    widths: tuple[float, float] = (1.0, 1.0)
    name: ClassVar[str] = "network_latency"
    metrics: ClassVar[tuple[str, ...]] = ("latency_ms",)
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {"terms of the host's time": tuple(TERMS)}

    @cached_property
    def device_time(self) -> DeviceTime:
        """The model of the device time."""
        return DeviceTime(self.networks, self.operators)

    def answers(self, query: Query) -> bool:
        """Whether one of the two predictors of device time answers the query."""
        return self.networks.answers(query) or self.operators.answers(query)

    def fit(self, measurements: Measurements) -> Self:
        """Fit the host time to runs that wait for the host, and corrections of the device time.

        The predictors of device time are not fitted again. Runs in half precision fit
        `half_precision`; recorded networks fit the errors of `networks` on the recorded GPUs, all
        of which share them.

        Args:
            measurements: networks with `latency_ms`. Rows with equal values of the group `host`
                share a host, and those with `NO_HOST` wait for none: they were recorded. Without
                that group, rows of one device share a host.
        """
        on_gpu, _, _ = _by_device_kind(measurements)
        recorded = _recorded(on_gpu)
        device_only, on_gpu = on_gpu.take(recorded), on_gpu.take(~recorded)
        devices = np.array([q.device.name for q in on_gpu.queries], dtype=np.str_)
        fitted = replace(self, half_precision=HalfPrecision())
        bound, seconds = fitted._host_bound(on_gpu)
        fitted = replace(fitted, widths=fitted._widths(on_gpu, devices))
        if bound.any():
            hosts = on_gpu.groups.get("host", devices)[bound].tolist()
            host = HostTime().fit(on_gpu.take(bound).queries, seconds[bound], hosts)
            fitted = replace(fitted, host=host)
        half_precision = fitted._half_precision(on_gpu, bound, devices)
        fitted = replace(fitted, half_precision=half_precision)
        device_ms = fitted._as_predicted(device_only, device_only.values["latency_ms"] / 1e3)
        if NETWORKS not in device_ms:
            return fitted
        return replace(fitted, networks=fitted.networks.adapt(device_ms[NETWORKS], together=True))

    def _widths(self, on_gpu: Measurements, devices: Names) -> tuple[float, float]:
        """Factors on half-widths with which intervals cover nine of ten rows.

        The rows are predicted without adaptation to them, every family has the same weight, and
        no interval is narrowed. The finite-sample correction of split conformal prediction for the
        dozen families is left out: with it, 97 to 100 % of held-out families were covered.
        """
        device = self.device_time.predict(on_gpu.queries)
        host, host_deviation = self.host.seconds(on_gpu.queries)
        value, low, high = _joined(device, host, host_deviation)
        error = np.log(on_gpu.values["latency_ms"] / 1e3 / value)
        half_width = np.where(error < 0, np.log(value / low), np.log(high / value))
        scores = np.abs(error) / half_width
        family = on_gpu.groups.get("family", devices)
        device_bound = device.seconds >= host
        return (
            _at_least_one(scores[device_bound], family[device_bound]),
            _at_least_one(scores[~device_bound], family[~device_bound]),
        )

    def with_parts(self, parts: Mapping[str, Predictor]) -> Self:
        """The predictor with these predictors of device time, before `fit`."""
        networks, operators = parts[NetworkBoost.name], parts[OperatorBoost.name]
        assert isinstance(networks, NetworkBoost)
        assert isinstance(operators, OperatorBoost)
        return replace(self, networks=networks, operators=operators).without_published()

    def without_published(self) -> Self:
        """The predictor without what `fit` and `adapt` added to the predictors of device time."""
        return replace(
            self,
            networks=replace(self.networks, support_gp=SupportGP()),
            operators=replace(self.operators, kernels=SupportGP(), networks=SupportGP()),
            host=HostTime(),
            half_precision=HalfPrecision(),
            widths=(1.0, 1.0),
        )

    def adapt(self, measurements: Measurements) -> Self:
        """Adapt the host time to runs that wait for the host, the device time to all others."""
        on_gpu, on_cpu, others = _by_device_kind(measurements)
        bound, seconds = self._host_bound(on_gpu)
        adapted = self
        if bound.any():
            host = self.host.adapt(on_gpu.take(bound).queries, seconds[bound])
            adapted = replace(self, host=host)
        rest = {NETWORKS: on_cpu, OPERATORS: others}
        return adapted._with_device_rows(on_gpu, bound, rest)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Latency from device and host time, never below either.

        Raises:
            UnknownPrecision: a device's sheet has no peak for a query's precision.
        """
        answer = PredictionColumns(len(queries), self.metrics)
        for joined, rows in groups_of(_runs_on_gpu(query) for query in queries).items():
            if joined:
                answer.put(rows, self._on_gpus([queries[row] for row in rows]))
                continue
            for source, own in self._by_part(queries, rows).items():
                part = self.device_time.parts[source]
                answer.put(own, part.predict([queries[row] for row in own]))
        return answer.predictions()

    def operator_times(self, query: Query) -> list[OperatorTime]:
        """Time of each operator on the device, by the predictor that gives the breakdown."""
        if _runs_on_gpu(query):
            return self.device_time.operator_times(query)
        (source,) = self._by_part([query], [0])
        return self.device_time.parts[source].operator_times(query)

    def suggest(self, queries: Sequence[Query], count: int, seed: int = 0) -> list[int]:
        """Positions of the workloads that are most informative to measure on a new device.

        The two predictors choose in turns, each among the queries that it answers.
        """
        chosen = []
        for source, rows in self._by_part(queries, range(len(queries))).items():
            part = self.device_time.parts[source]
            own = part.suggest([queries[row] for row in rows], count, seed)
            chosen.append([rows[index] for index in own])
        return in_turns(chosen)[:count]

    def _on_gpus(self, queries: Sequence[Query]) -> Predictions:
        """Latency of networks on GPUs, from device and host time."""
        device = self._device_times(queries)
        half = self._in_half_precision(queries)
        widths = np.where(half, self.half_precision.width, self.widths[0]), self.widths[1]
        value, low, high = _joined(device, *self.host.seconds(queries), widths)
        host_ms = (np.maximum(value - device.seconds, 0.0) * 1e3).tolist()
        breakdowns = zip(device.breakdowns, host_ms, strict=True)
        return Predictions.of_metric(
            "latency_ms",
            value * 1e3,
            (low * 1e3, high * 1e3),
            coverage=LEVEL,
            limits=device.limits,
            breakdowns_ms=[{**breakdown, "host": ms} for breakdown, ms in breakdowns],
        )

    def _device_times(self, queries: Sequence[Query]) -> DeviceTimes:
        """Device times of n networks on GPUs, corrected in half precision."""
        times = self.device_time.predict(queries)
        factors = np.exp(self._log_corrections(queries, times))
        breakdowns: list[Mapping[str, float]] = [
            {name: ms * factor for name, ms in breakdown.items()}
            for breakdown, factor in zip(times.breakdowns, factors.tolist(), strict=True)
        ]
        return times._replace(seconds=times.seconds * factors, breakdowns=breakdowns)

    def _in_half_precision(self, queries: Sequence[Query]) -> Mask:
        """Which networks `half_precision` corrects, (n,): on GPUs without timed networks."""
        known = self.networks.domain.known
        return applies(queries) & np.array([q.device not in known for q in queries], dtype=np.bool_)

    def _log_corrections(self, queries: Sequence[Query], times: DeviceTimes) -> Column:
        """Logarithms of the factors on the device times of n networks, shape (n,)."""
        logs = np.zeros(len(queries))
        rows = np.flatnonzero(self._in_half_precision(queries)).tolist()
        breakdowns = [times.breakdowns[row] for row in rows]
        logs[rows] = self.half_precision.log_factors([queries[row] for row in rows], breakdowns)
        for row in np.flatnonzero(logs < 0.0).tolist():
            # A correction takes no answer below the sum of its kernels' rooflines.
            reach = np.log(roofline_s(queries[row]) / times.seconds[row])
            logs[row] = max(logs[row], min(0.0, reach))
        # The correction is of what is not recurrent.
        shares = [own.get("recurrent", 0.0) / sum(own.values()) for own in times.breakdowns]
        return np.log1p(np.expm1(logs) * (1.0 - np.array(shares)))

    def _half_precision(self, on_gpu: Measurements, bound: Mask, devices: Names) -> HalfPrecision:
        """Correction in half precision, fitted to rows that clearly exceed the host time."""
        measured = on_gpu.values["latency_ms"] / 1e3
        host, _ = self.host.seconds(on_gpu.queries)
        clear = ~bound & (host < CLEAR_OF_HOST * measured)
        eager = np.array([q.software.runtime == "eager" for q in on_gpu.queries], dtype=np.bool_)
        kept = self._in_half_precision(on_gpu.queries) & clear & eager
        rows = on_gpu.take(kept)
        times = self.device_time.predict(rows.queries)
        own = (measured[kept] ** OVERLAP - host[kept] ** OVERLAP) ** (1.0 / OVERLAP)
        errors = np.log(own / times.seconds)
        families = rows.groups.get("family", devices[kept])
        groups = np.char.add(np.char.add(families, "|"), devices[kept])
        chips = rows.groups.get("chip", devices[kept])
        ends = times.low, times.high
        runs = MeasuredRuns(rows.queries, times.breakdowns, errors, *ends, groups, families, chips)
        return HalfPrecision.fit(runs)

    def _by_part(self, queries: Sequence[Query], rows: Sequence[int]) -> dict[str, list[int]]:
        """Name of a predictor of device time -> rows that it answers, `NETWORKS` first."""
        sources = [NETWORKS if self.networks.answers(queries[r]) else OPERATORS for r in rows]
        groups = sorted(groups_of(sources).items())
        return {source: [rows[index] for index in own] for source, own in groups}

    def _host_bound(self, on_gpu: Measurements) -> tuple[Mask, Column]:
        """Which networks on GPUs wait for the host, and the host time in seconds; both (n,).

        The host time is what the norm of order `OVERLAP` leaves of the measured latency without
        the predicted device time.
        """
        measured = on_gpu.values["latency_ms"] / 1e3
        device = self._device_times(on_gpu.queries).seconds
        remainder = np.maximum(measured**OVERLAP - np.minimum(device, measured) ** OVERLAP, 0.0)
        seconds = remainder ** (1.0 / OVERLAP)
        plausible = HostTime().plausible(on_gpu.queries, seconds)
        return (device < HOST_BOUND * measured) & plausible, seconds

    def _as_predicted(self, on_gpu: Measurements, seconds: Column) -> dict[str, Measurements]:
        """Rows for the predictors of device time: without corrections, at filling batches.

        Args:
            on_gpu: n measured networks on GPUs.
            seconds: (n,) device time of each.
        """
        times = self.device_time.predict(on_gpu.queries)
        corrections = np.exp(self._log_corrections(on_gpu.queries, times))
        return self.device_time.at_filling_batches(on_gpu, seconds / corrections)

    def _with_device_rows(
        self, on_gpu: Measurements, bound: Mask, rest: Mapping[str, Measurements]
    ) -> Self:
        """The predictor with its device time adapted to rows that are not bound by the host.

        Args:
            on_gpu: n measured networks on GPUs.
            bound: (n,) whether they wait for the host.
            rest: name of a predictor of device time -> other rows to adapt it to.
        """
        on_gpu = on_gpu.take(~bound)
        measured = on_gpu.values["latency_ms"] / 1e3
        host, _ = self.host.seconds(on_gpu.queries)
        clear = host < CLEAR_OF_HOST * measured
        own = measured**OVERLAP - np.where(clear, host, 0.0) ** OVERLAP
        filled = self._as_predicted(on_gpu, own ** (1.0 / OVERLAP))
        adapted: dict[str, Any] = {}
        for source, part in self.device_time.parts.items():
            tables = [t[source] for t in (rest, filled) if source in t and len(t[source])]
            if tables:
                adapted[source] = part.adapt(reduce(add, tables))
        return replace(self, **adapted)


def _recorded(measurements: Measurements) -> Mask:
    """Which of n runs do not wait for a host, shape (n,)."""
    if "host" not in measurements.groups:
        return np.zeros(len(measurements), dtype=np.bool_)
    return np.asarray(measurements.groups["host"] == NO_HOST)


def _runs_on_gpu(query: Query) -> bool:
    return query.workload.kind == "network" and query.device.kind == "gpu"


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
    times: DeviceTimes,
    host_s: Column,
    host_deviation: Column,
    widths: tuple[float | Column, float] = (1.0, 1.0),
) -> tuple[Column, Column, Column]:
    """Latency, low and high in seconds, each (n,); device and host errors count as independent."""
    device, host = times.seconds**OVERLAP, host_s**OVERLAP
    value = (device + host) ** (1.0 / OVERLAP)
    share = device / (device + host)
    half_width = HALF_WIDTH * host_deviation * (1.0 - share)
    factor = np.where(times.seconds >= host_s, *widths)
    low = value * np.exp(-factor * np.hypot(share * times.low, half_width))
    high = value * np.exp(factor * np.hypot(share * times.high, half_width))
    return value, low, high
