"""Latency of networks on GPUs at every precision, batch size and runtime: device and host time.

Predictors fitted on measured networks and kernels give the device time (`DeviceTime`), a mixed
model gives the host time (`HostTime`). Device and host work at the same time, so the latency is
little more than the longer of the two.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.models.adaptation.suggestions import in_turns
from forerun.models.adaptation.support_gp import SupportGP
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import group_weights, weighted_quantile
from forerun.models.estimator import SETTING
from forerun.models.limit import Limit
from forerun.models.networks.booster import NetworkBoost
from forerun.models.networks.device_time import (
    NETWORKS,
    NORMAL_95,
    OPERATORS,
    DeviceTime,
    DeviceTimes,
)
from forerun.models.networks.host_time import TERMS, HostTime
from forerun.models.operators.booster import OperatorBoost
from forerun.models.prediction import Predictions
from forerun.models.predictor import Predictor

Column = NDArray[np.float64]

OVERLAP = 4.0
"""Order of the norm that joins device and host time: where both are equal, the latency is 19 %
longer than either. Published latencies of ResNet-50 rise as gently around the batch size at which
the device time exceeds the host time."""
COVERAGE = 0.9
HOST_BOUND = 0.7
"""Predicted device time over measured latency below which a row counts as waiting for the host."""
CLEAR_OF_HOST = 0.9
"""Predicted host time over measured latency below which a row informs about the device time."""


class _Times(NamedTuple):
    """Times of n networks.

    Attributes:
        device: device times.
        host: (n,) host times in seconds.
        host_deviation: (n,) standard deviation of the logarithm of `host`.
    """

    device: DeviceTimes
    host: Column
    host_deviation: Column


@dataclass(frozen=True)
class NetworkLatency(StoredPredictor):
    """Latency of networks from device and host time; single kernels go to `OperatorBoost`.

    Attributes:
        networks: predicts device times of networks, and latencies of networks on CPUs.
        operators: predicts device times of networks as sums of kernels, and single kernels.
        host: model of the host time.
        widths: factors on the half-widths of intervals: of runs with the longer device time, and
            of runs with the longer host time.
    """

    networks: NetworkBoost = field(default_factory=NetworkBoost, metadata=SETTING)
    operators: OperatorBoost = field(default_factory=OperatorBoost, metadata=SETTING)
    host: HostTime = field(default_factory=HostTime)
    widths: tuple[float, float] = (1.0, 1.0)
    name: ClassVar[str] = "network_latency"
    metrics: ClassVar[tuple[str, ...]] = ("latency_ms",)
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {"terms of the host's time": tuple(TERMS)}

    @property
    def parts(self) -> tuple[Predictor, ...]:
        """The two predictors of device time."""
        return self.device_time.parts

    @property
    def device_time(self) -> DeviceTime:
        """The model of the device time."""
        return DeviceTime(self.networks, self.operators)

    def answers(self, query: Query) -> bool:
        """Whether one of the two predictors of device time answers the query."""
        return self.networks.answers(query) or self.operators.answers(query)

    def fit(self, measurements: Measurements) -> Self:
        """Fit the host time to runs that wait for the host, and adapt the device time to the rest.

        The predictors of device time are adapted, not fitted again.

        Args:
            measurements: networks with `latency_ms`. Rows with equal values of the group `host`
                share a host; without that group, rows of one device do.
        """
        measurements = _measured_networks(measurements)
        hosts = measurements.groups.get("host")
        names = [q.device.name for q in measurements.queries] if hosts is None else hosts.tolist()
        bound, seconds = self._host_bound(measurements)
        fitted = self
        if bound.any():
            waiting = measurements.take(bound).queries
            keys = [names[i] for i in np.flatnonzero(bound).tolist()]
            fitted = replace(self, host=HostTime().fit(waiting, seconds[bound], keys))
        widths = self._widths(measurements)
        return replace(fitted._with_device_rows(measurements), widths=widths)

    def _widths(self, measurements: Measurements) -> tuple[float, float]:
        """Factors on half-widths with which intervals cover nine of ten rows.

        The rows are predicted without adaptation to them, every family has the same weight, and
        no interval is narrowed. The finite-sample correction of split conformal prediction for the
        dozen families is left out: with it, 97 to 100 % of held-out families were covered.
        """
        on_gpu = np.array([_runs_on_gpu(q) for q in measurements.queries], dtype=np.bool_)
        if not on_gpu.any():
            return 1.0, 1.0
        measurements = measurements.take(on_gpu)
        unscaled = replace(self, widths=(1.0, 1.0))
        times = unscaled._times(measurements.queries)
        value, low, high = _joined(times)
        error = np.log(measurements.values["latency_ms"] / 1e3 / value)
        half_width = np.where(error < 0, np.log(value / low), np.log(high / value))
        scores = np.abs(error) / half_width
        devices = np.array([q.device.name for q in measurements.queries])
        family = measurements.groups.get("family", devices)
        device_bound = times.device.seconds >= times.host
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
            widths=(1.0, 1.0),
        )

    def adapt(self, measurements: Measurements) -> Self:
        """Adapt the host time to runs that wait for the host, the device time to all others."""
        networks = _measured_networks(measurements)
        others = measurements.take(
            np.array([q.workload.kind != "network" for q in measurements.queries], dtype=np.bool_)
        )
        adapted = self
        if len(networks):
            bound, seconds = self._host_bound(networks)
            if bound.any():
                waiting = networks.take(bound).queries
                adapted = replace(adapted, host=self.host.adapt(waiting, seconds[bound]))
        return adapted._with_device_rows(networks, others, undecided=True)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Latency from device and host time, never below either.

        Raises:
            UnknownPrecision: a device's sheet has no peak for a query's precision.
        """
        n = len(queries)
        values, low, high = np.zeros(n), np.full(n, np.nan), np.full(n, np.nan)
        limits: list[tuple[Limit, ...]] = [()] * n
        breakdowns: list[Mapping[str, float]] = [{}] * n
        joined = np.array([_runs_on_gpu(q) for q in queries], dtype=np.bool_)
        for rows, answer in self._plain(queries, np.flatnonzero(~joined).tolist()):
            values[rows] = answer.values["latency_ms"]
            low[rows] = answer.low.get("latency_ms", np.full(len(rows), np.nan))
            high[rows] = answer.high.get("latency_ms", np.full(len(rows), np.nan))
            for index, row in enumerate(rows):
                limits[row] = answer.limits[index] if answer.limits else ()
                breakdowns[row] = answer.breakdowns_ms[index] if answer.breakdowns_ms else {}
        on_gpu = np.flatnonzero(joined).tolist()
        if on_gpu:
            times = self._times([queries[i] for i in on_gpu])
            value, below, above = _joined(times, self.widths)
            values[on_gpu], low[on_gpu], high[on_gpu] = value * 1e3, below * 1e3, above * 1e3
            for index, row in enumerate(on_gpu):
                limits[row] = times.device.limits[index]
                host_ms = float((value[index] - times.device.seconds[index]) * 1e3)
                breakdowns[row] = {**times.device.breakdowns[index], "host": host_ms}
        return Predictions(
            {"latency_ms": values},
            {"latency_ms": low},
            {"latency_ms": high},
            COVERAGE,
            limits,
            breakdowns,
        )

    def suggest(self, queries: Sequence[Query], count: int, seed: int = 0) -> list[int]:
        """Positions of the workloads that are most informative to measure on a new device.

        The two predictors choose in turns, each among the queries that it answers.
        """
        chosen = []
        for source, rows in self._by_part(queries, range(len(queries))).items():
            part: NetworkBoost | OperatorBoost = (
                self.networks if source == NETWORKS else self.operators
            )
            own = part.suggest([queries[row] for row in rows], count, seed)
            chosen.append([rows[index] for index in own])
        return in_turns(chosen)[:count]

    def _by_part(self, queries: Sequence[Query], rows: Iterable[int]) -> dict[int, list[int]]:
        """Position in `parts` -> rows that this part answers; parts without rows are left out."""
        own: dict[int, list[int]] = {NETWORKS: [], OPERATORS: []}
        for row in rows:
            own[NETWORKS if self.networks.answers(queries[row]) else OPERATORS].append(row)
        return {source: answered for source, answered in own.items() if answered}

    def _plain(
        self, queries: Sequence[Query], rows: Sequence[int]
    ) -> list[tuple[list[int], Predictions]]:
        """Predictions of the part that answers each query, with the rows' positions."""
        return [
            (own, self.parts[source].predict([queries[row] for row in own]))
            for source, own in self._by_part(queries, rows).items()
        ]

    def _times(self, queries: Sequence[Query]) -> _Times:
        """Device and host times, with their uncertainties."""
        return _Times(self.device_time.predict(queries), *self.host.seconds(queries))

    def _host_bound(self, networks: Measurements) -> tuple[NDArray[np.bool_], Column]:
        """Which rows wait for the host, and the host time of each in seconds; both (n,).

        The host time is what the norm of order `OVERLAP` leaves of the measured latency without
        the predicted device time.
        """
        measured = networks.values["latency_ms"] / 1e3
        on_gpu = np.array([_runs_on_gpu(q) for q in networks.queries], dtype=np.bool_)
        device = np.full(len(networks), np.inf)
        if on_gpu.any():
            device[on_gpu] = self.device_time.predict(networks.take(on_gpu).queries).seconds
        remainder = np.maximum(measured**OVERLAP - np.minimum(device, measured) ** OVERLAP, 0.0)
        seconds = remainder ** (1.0 / OVERLAP)
        plausible = np.zeros(len(networks), dtype=np.bool_)
        if on_gpu.any():
            kept = networks.take(on_gpu).queries
            plausible[on_gpu] = HostTime().plausible(kept, seconds[on_gpu])
        return (device < HOST_BOUND * measured) & plausible, seconds

    def _with_device_rows(
        self,
        networks: Measurements,
        others: Measurements | None = None,
        undecided: bool = False,
    ) -> Self:
        """The predictor with its device time adapted to rows that are not bound by the host."""
        own: dict[int, list[Measurements]] = {NETWORKS: [], OPERATORS: []}
        if others is not None and len(others):
            own[OPERATORS].append(others)
        if len(networks):
            on_gpu = np.array([_runs_on_gpu(q) for q in networks.queries], dtype=np.bool_)
            if not on_gpu.all():
                own[NETWORKS].append(networks.take(~on_gpu))
            if on_gpu.any():
                for source, rows in self._at_filling_batches(
                    networks.take(on_gpu), undecided
                ).items():
                    own[source].append(rows)
        adapted = self
        if own[NETWORKS]:
            adapted = replace(adapted, networks=self.networks.adapt(reduce(add, own[NETWORKS])))
        if own[OPERATORS]:
            rows = reduce(add, own[OPERATORS])
            adapted = replace(adapted, operators=self.operators.adapt(rows))
        return adapted

    def _at_filling_batches(
        self, networks: Measurements, undecided: bool
    ) -> dict[int, Measurements]:
        """Position in `parts` -> device times of the rows that are not bound by the host.

        The rows are scaled to the batch sizes of that part's queries.

        Args:
            networks: measured networks on GPUs.
            undecided: whether to include rows that neither wait for the host nor clearly exceed
                the host time.
        """
        bound, _ = self._host_bound(networks)
        measured = networks.values["latency_ms"] / 1e3
        host, _ = self.host.seconds(networks.queries)
        clear = host < CLEAR_OF_HOST * measured
        own = measured**OVERLAP - np.where(clear, host, 0.0) ** OVERLAP
        kept = ~bound & (clear | undecided)
        return self.device_time.at_filling_batches(
            networks.take(kept), own[kept] ** (1.0 / OVERLAP)
        )


def _runs_on_gpu(query: Query) -> bool:
    return query.workload.kind == "network" and query.device.kind == "gpu"


def _measured_networks(measurements: Measurements) -> Measurements:
    latency = measurements.values["latency_ms"]
    kept = [
        q.workload.kind == "network" and bool(ms > 0)
        for q, ms in zip(measurements.queries, latency.tolist(), strict=True)
    ]
    return measurements.take(np.array(kept, dtype=np.bool_))


def _at_least_one(scores: Column, groups: NDArray[np.str_]) -> float:
    """The `COVERAGE` quantile of scores with equal weight for every group, at least 1."""
    if not len(scores):
        return 1.0
    return max(1.0, weighted_quantile(scores, group_weights(groups), COVERAGE))


def _joined(
    times: _Times, widths: tuple[float, float] = (1.0, 1.0)
) -> tuple[Column, Column, Column]:
    """Latency, low and high in seconds, each (n,); device and host errors count as independent."""
    device, host = times.device.seconds**OVERLAP, times.host**OVERLAP
    value = (device + host) ** (1.0 / OVERLAP)
    share = device / (device + host)
    half_width = NORMAL_95 * times.host_deviation * (1.0 - share)
    factor = np.where(times.device.seconds >= times.host, *widths)
    low = value * np.exp(-factor * np.hypot(share * times.device.low, half_width))
    high = value * np.exp(factor * np.hypot(share * times.device.high, half_width))
    return value, low, high
