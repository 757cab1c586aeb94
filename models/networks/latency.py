"""Latency of networks on GPUs for every precision, batch size and runtime: device and host.

The device's time comes from predictors that were fitted on measured networks and kernels
(`DeviceTime`), the host's time is a law of its own (`HostTime`). Both run at once, so the latency
is little more than the longer of the two.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.models.adaptation.support_gp import SupportGP
from forerun.models.artifact.sealed_folder import load_part, read_content, write_content
from forerun.models.networks.booster import NetworkBoost
from forerun.models.networks.device_time import (
    NETWORKS,
    NORMAL_95,
    OPERATORS,
    DeviceTime,
    DeviceTimes,
)
from forerun.models.networks.host_time import HostTime
from forerun.models.operators.booster import OperatorBoost
from forerun.models.prediction import Predictions
from forerun.models.predictor import Predictor

Column = NDArray[np.float64]

OVERLAP = 4.0
"""Exponent of the norm that joins device and host: with both equal, the run takes 19 % longer than
either. Published latencies of ResNet-50 by batch size rise as gently where one takes over."""
COVERAGE = 0.9
HOST_BOUND = 0.7
"""Device's time over the measured one below which a run says what the host takes."""
CLEAR_OF_HOST = 0.9
"""Host's time over the measured one below which the rest is taken for the device's."""


class _Times(NamedTuple):
    """Times of n networks: on the device, of the host in s, and its logarithm's deviation."""

    device: DeviceTimes
    host: Column
    host_deviation: Column


@dataclass(frozen=True)
class NetworkLatency:
    """Device and host time of networks, and the operators' own predictor for single kernels.

    Attributes:
        networks: device time of networks, and time of those on CPUs.
        operators: device time of networks in full precision as the sum of their kernels, and time
            of single kernels.
        host: time of the host.
        widths: factor on the reach of intervals, of runs whose longer part is the device's time
            and of those that wait for the host.
    """

    networks: NetworkBoost = field(default_factory=NetworkBoost)
    operators: OperatorBoost = field(default_factory=OperatorBoost)
    host: HostTime = field(default_factory=HostTime)
    widths: tuple[float, float] = (1.0, 1.0)
    name: ClassVar[str] = "network_latency"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Latency only."""
        return ("latency_ms",)

    @property
    def parts(self) -> tuple[Predictor, ...]:
        """The predictors of the device's time."""
        return self.device_time.parts

    @property
    def device_time(self) -> DeviceTime:
        """The device's part of the latency."""
        return DeviceTime(self.networks, self.operators)

    def answers(self, query: Query) -> bool:
        """Networks and kernels on devices with a sheet, once fitted."""
        return self.networks.answers(query) or self.operators.answers(query)

    def fit(self, measurements: Measurements) -> Self:
        """The host's law from runs that wait for it, the device's part adapted to the others.

        The predictors of the device's time keep what they were fitted on.

        Args:
            measurements: networks with `latency_ms`; the group `host`, where there is one, says
                which rows share a host.
        """
        measurements = _measured_networks(measurements)
        hosts = measurements.groups.get("host")
        names = [q.device.name for q in measurements.queries] if hosts is None else hosts.tolist()
        bound, seconds = self._host_bound(measurements)
        fitted = self
        if bound.any():
            kept = measurements.take(bound).queries
            keys = [names[i] for i in np.flatnonzero(bound).tolist()]
            fitted = replace(self, host=HostTime().fit(kept, seconds[bound], keys))
        widths = self._widths(measurements)
        return replace(fitted._with_device_rows(measurements), widths=widths)

    def _widths(self, measurements: Measurements) -> tuple[float, float]:
        """Factors with which intervals hold nine of ten rows of families not adapted to.

        The rows are answered without having been seen, every family counts alike, and no interval
        is narrowed. The level is not raised for the dozen of families, as split conformal
        prediction would: on families left out that covered 97 to 100 %.
        """
        on_gpu = np.array([_runs_on_gpu(q) for q in measurements.queries], dtype=np.bool_)
        if not on_gpu.any():
            return 1.0, 1.0
        measurements = measurements.take(on_gpu)
        plain = replace(self, widths=(1.0, 1.0))
        times = plain._times(measurements.queries)
        value, low, high = _joined(times)
        error = np.log(measurements.values["latency_ms"] / 1e3 / value)
        reach = np.where(error < 0, np.log(value / low), np.log(high / value))
        scores = np.abs(error) / reach
        devices = np.array([q.device.name for q in measurements.queries])
        family = measurements.groups.get("family", devices)
        busy = times.device.seconds >= times.host
        return (
            _grouped_quantile(scores[busy], family[busy]),
            _grouped_quantile(scores[~busy], family[~busy]),
        )

    def without_published(self) -> Self:
        """The device's predictors as fitted on their own tables, nothing known of any host."""
        return replace(
            self,
            networks=replace(self.networks, few_rows=SupportGP()),
            operators=replace(self.operators, kernels=SupportGP(), networks=SupportGP()),
            host=HostTime(),
            widths=(1.0, 1.0),
        )

    def adapt(self, measurements: Measurements) -> Self:
        """Levels of hosts from runs that wait for them; the rest corrects the device's time."""
        networks = _measured_networks(measurements)
        others = measurements.take(
            np.array([q.workload.kind != "network" for q in measurements.queries], dtype=np.bool_)
        )
        adapted = self
        if len(networks):
            bound, seconds = self._host_bound(networks)
            if bound.any():
                kept = networks.take(bound).queries
                adapted = replace(adapted, host=self.host.adapt(kept, seconds[bound]))
        return adapted._with_device_rows(networks, others, undecided=True)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Device and host time joined, never below either.

        Raises:
            UnknownPrecision: a device's sheet has no peak for a query's precision.
        """
        n = len(queries)
        values, low, high = np.zeros(n), np.full(n, np.nan), np.full(n, np.nan)
        limits: list[tuple[str, ...]] = [()] * n
        breakdowns: list[Mapping[str, float]] = [{}] * n
        joined = np.array([_runs_on_gpu(q) for q in queries], dtype=np.bool_)
        for rows, answer in self._plain(queries, np.flatnonzero(~joined).tolist()):
            values[rows] = answer.values["latency_ms"]
            low[rows] = answer.low.get("latency_ms", np.full(len(rows), np.nan))
            high[rows] = answer.high.get("latency_ms", np.full(len(rows), np.nan))
            for place, row in enumerate(rows):
                limits[row] = answer.limits[place] if answer.limits else ()
                breakdowns[row] = answer.breakdowns_ms[place] if answer.breakdowns_ms else {}
        places = np.flatnonzero(joined).tolist()
        if places:
            times = self._times([queries[i] for i in places])
            value, below, above = _joined(times, self.widths)
            values[places], low[places], high[places] = value * 1e3, below * 1e3, above * 1e3
            for place, row in enumerate(places):
                limits[row] = times.device.limits[place]
                host_ms = float((value[place] - times.device.seconds[place]) * 1e3)
                breakdowns[row] = {**times.device.breakdowns[place], "host": host_ms}
        return Predictions(
            {"latency_ms": values},
            {"latency_ms": low},
            {"latency_ms": high},
            COVERAGE,
            limits,
            breakdowns,
        )

    def suggest(self, queries: Sequence[Query], count: int, seed: int = 0) -> list[int]:
        """Positions of the workloads whose measurement on a new device says most.

        Both predictors choose among those that are theirs, in turns.
        """
        chosen = []
        for source, rows in self._by_part(queries, range(len(queries))).items():
            part: NetworkBoost | OperatorBoost = (
                self.networks if source == NETWORKS else self.operators
            )
            own = part.suggest([queries[row] for row in rows], count, seed)
            chosen.append([rows[index] for index in own])
        turns = chain.from_iterable(zip_longest(*chosen))
        return [row for row in turns if row is not None][:count]

    def _by_part(self, queries: Sequence[Query], rows: Iterable[int]) -> dict[int, list[int]]:
        """Position in `parts` -> rows that it answers first; without parts that answer none."""
        own: dict[int, list[int]] = {NETWORKS: [], OPERATORS: []}
        for row in rows:
            own[NETWORKS if self.networks.answers(queries[row]) else OPERATORS].append(row)
        return {source: answered for source, answered in own.items() if answered}

    def _plain(
        self, queries: Sequence[Query], rows: Sequence[int]
    ) -> list[tuple[list[int], Predictions]]:
        """Answers of the part that a query belongs to, with their positions."""
        return [
            (own, self.parts[source].predict([queries[row] for row in own]))
            for source, own in self._by_part(queries, rows).items()
        ]

    def _times(self, queries: Sequence[Query]) -> _Times:
        """Times of the device and the host, with bounds."""
        return _Times(self.device_time.predict(queries), *self.host.seconds(queries))

    def _host_bound(self, networks: Measurements) -> tuple[NDArray[np.bool_], Column]:
        """Which rows wait for the host, and its time of each, from what was measured."""
        measured = networks.values["latency_ms"] / 1e3
        on_gpu = np.array([_runs_on_gpu(q) for q in networks.queries], dtype=np.bool_)
        device = np.full(len(networks), np.inf)
        if on_gpu.any():
            device[on_gpu] = self.device_time.predict(networks.take(on_gpu).queries).seconds
        rest = np.maximum(measured**OVERLAP - np.minimum(device, measured) ** OVERLAP, 0.0)
        seconds = rest ** (1.0 / OVERLAP)
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
        """The device's predictors adapted on rows whose time is the device's own."""
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
            adapted = replace(adapted, networks=self.networks.adapt(_sum(own[NETWORKS])))
        if own[OPERATORS]:
            adapted = replace(adapted, operators=self.operators.adapt(_sum(own[OPERATORS])))
        return adapted

    def _at_filling_batches(
        self, networks: Measurements, undecided: bool
    ) -> dict[int, Measurements]:
        """Source -> rows whose time is the device's own, at the batches that it is asked for.

        Args:
            networks: measured networks on GPUs.
            undecided: whether rows that neither wait for the host nor clearly exceed its time
                count as the device's own.
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

    def save(self, folder: Path) -> None:
        """Each part in a folder of its own, the host's law as JSON."""
        write_content(
            folder,
            self.name,
            {
                "parts": [part.name for part in self.parts],
                "host": self.host.to_json(),
                "widths": self.widths,
            },
        )
        for part in self.parts:
            part.save(folder / part.name)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote.

        Raises:
            BadArtifact: the folder is damaged, or was fitted on other features.
        """
        content: Mapping[str, Any] = read_content(folder, cls.name)
        networks, operators = (load_part(folder / Path(name).name) for name in content["parts"])
        assert isinstance(networks, NetworkBoost)
        assert isinstance(operators, OperatorBoost)
        below, above = content["widths"]
        return cls(networks, operators, HostTime.from_json(content["host"]), (below, above))


def _runs_on_gpu(query: Query) -> bool:
    return query.workload.kind == "network" and query.device.kind == "gpu"


def _measured_networks(measurements: Measurements) -> Measurements:
    latency = measurements.values["latency_ms"]
    kept = [
        q.workload.kind == "network" and bool(ms > 0)
        for q, ms in zip(measurements.queries, latency.tolist(), strict=True)
    ]
    return measurements.take(np.array(kept, dtype=np.bool_))


def _sum(parts: Sequence[Measurements]) -> Measurements:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _grouped_quantile(scores: Column, groups: NDArray[np.str_]) -> float:
    """The `COVERAGE` quantile of scores in which every group weighs alike, at least 1."""
    if not len(scores):
        return 1.0
    _, group, counts = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.argsort(scores)
    weights = (1.0 / counts)[group][order]
    place = int(np.searchsorted(np.cumsum(weights), COVERAGE * weights.sum()))
    return max(1.0, float(scores[order][min(place, len(scores) - 1)]))


def _joined(
    times: _Times, widths: tuple[float, float] = (1.0, 1.0)
) -> tuple[Column, Column, Column]:
    """Latency, low and high in seconds, each (n,); errors of device and host are independent."""
    device, host = times.device.seconds**OVERLAP, times.host**OVERLAP
    value = (device + host) ** (1.0 / OVERLAP)
    share = device / (device + host)
    reach = NORMAL_95 * times.host_deviation * (1.0 - share)
    wider = np.where(times.device.seconds >= times.host, *widths)
    low = value * np.exp(-wider * np.hypot(share * times.device.low, reach))
    high = value * np.exp(wider * np.hypot(share * times.device.high, reach))
    return value, low, high
