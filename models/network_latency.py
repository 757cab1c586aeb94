"""Latency of networks on GPUs for every precision, batch size and runtime: device and host.

The device's time comes from predictors that were fitted on measured kernels and networks: `networks`
for half precision, `operators` for full. What neither was trained on, batches that do not fill the
device, follows the kernels' law. The host's time is a law of its own. Both run at once, so the
latency is little more than the longer of the two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.features.lowering import lowered, lowering_mode
from forerun.features.lowering.mode import LoweringMode
from forerun.features.network_features import chip_of
from forerun.models.artifact import load_part, read_content, write_content
from forerun.models.batch_ladder import Rungs, filling_batch, law_seconds, rungs
from forerun.models.host_time import HostTime
from forerun.models.kernel_times import way_of
from forerun.models.network_boost import NetworkBoost
from forerun.models.operator_boost import OperatorBoost
from forerun.models.prediction import Predictions
from forerun.models.predictor import Predictor

Column = NDArray[np.float64]

OVERLAP = 4.0
"""Exponent of the norm that joins device and host: with both equal, the run takes 19 % longer than
either. Published latencies of ResNet-50 by batch size rise as gently where one takes over."""
NORMAL_95 = 1.645
HOST_BOUND = 0.5
"""Share of the host from which a measured run says more of the host than of the device."""
DOUBLING_DEVIATION = 0.06
"""Standard deviation of the logarithm that each halving below the filling batch adds."""


class _Device(NamedTuple):
    """The device's time of one network: how it follows from what a predictor is asked."""

    place: int
    rungs: Rungs
    factor: tuple[float, float]
    halvings: float


class _Parts(NamedTuple):
    """Times of n networks in seconds, with bounds of their logarithm around them."""

    device: Column
    device_low: Column
    device_high: Column
    host: Column
    host_deviation: Column
    limits: list[tuple[str, ...]]
    breakdowns: list[Mapping[str, float]]


@dataclass(frozen=True)
class NetworkLatency:
    """Device and host time of networks, and the operators' own predictor for single kernels.

    Attributes:
        networks: device time of networks in half precision, and of all on CPUs.
        operators: device time of networks in full precision, and of kernels.
        host: time of the host.
    """

    networks: NetworkBoost = field(default_factory=NetworkBoost)
    operators: OperatorBoost = field(default_factory=OperatorBoost)
    host: HostTime = field(default_factory=HostTime)
    name: ClassVar[str] = "network_latency"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Latency only."""
        return ("latency_ms",)

    @property
    def parts(self) -> tuple[Predictor, ...]:
        """The predictors of the device's time."""
        return (self.networks, self.operators)

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
        return fitted._with_device_rows(measurements)

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
        return adapted._with_device_rows(networks, others)

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
            parts = self._parts([queries[i] for i in places])
            value, below, above = _joined(parts)
            values[places], low[places], high[places] = value * 1e3, below * 1e3, above * 1e3
            for place, row in enumerate(places):
                limits[row] = parts.limits[place]
                host_ms = float((value[place] - parts.device[place]) * 1e3)
                breakdowns[row] = {**parts.breakdowns[place], "host": host_ms}
        return Predictions(
            {"latency_ms": values},
            {"latency_ms": low},
            {"latency_ms": high},
            0.9,
            limits,
            breakdowns,
        )

    def suggest(self, queries: Sequence[Query], count: int, seed: int = 0) -> list[int]:
        """Positions of the workloads whose measurement on a new device says most."""
        half = [i for i, q in enumerate(queries) if self.networks.answers(q)]
        part: NetworkBoost | OperatorBoost = self.networks if half else self.operators
        own = half or list(range(len(queries)))
        return [own[i] for i in part.suggest([queries[i] for i in own], count, seed)]

    def _plain(
        self, queries: Sequence[Query], rows: Sequence[int]
    ) -> list[tuple[list[int], Predictions]]:
        """Answers of the part that a query belongs to, with their positions."""
        mine: dict[bool, list[int]] = {True: [], False: []}
        for row in rows:
            mine[self.networks.answers(queries[row])].append(row)
        parts: dict[bool, Predictor] = {True: self.networks, False: self.operators}
        return [
            (own, parts[half].predict([queries[row] for row in own]))
            for half, own in mine.items()
            if own
        ]

    def _parts(self, queries: Sequence[Query]) -> _Parts:
        host, host_deviation = self.host.seconds(queries)
        asked: list[Query] = []
        plans: list[_Device] = []
        for query in queries:
            plan = self._device_plan(query, len(asked))
            plans.append(plan)
            asked.append(_at(query, plan.rungs.lower))
            if plan.rungs.upper != plan.rungs.lower:
                asked.append(_at(query, plan.rungs.upper))
        value, low, high = (np.empty(len(asked)) for _ in range(3))
        limits: list[tuple[str, ...]] = [()] * len(asked)
        breakdowns: list[Mapping[str, float]] = [{}] * len(asked)
        for rows, answer in self._plain(asked, range(len(asked))):
            value[rows] = answer.values["latency_ms"] / 1e3
            low[rows] = answer.low.get("latency_ms", answer.values["latency_ms"]) / 1e3
            high[rows] = answer.high.get("latency_ms", answer.values["latency_ms"]) / 1e3
            for place, row in enumerate(rows):
                limits[row] = answer.limits[place]
                breakdowns[row] = answer.breakdowns_ms[place]
        device, below, above = (np.empty(len(queries)) for _ in range(3))
        for row, plan in enumerate(plans):
            i, j = plan.place, plan.place + (plan.rungs.upper != plan.rungs.lower)
            w = plan.rungs.weight
            logs = np.log([value[i] * plan.factor[0], value[j] * plan.factor[1]])
            device[row] = np.exp((1 - w) * logs[0] + w * logs[1])
            extra = NORMAL_95 * DOUBLING_DEVIATION * plan.halvings
            below[row] = -np.hypot(np.log(value[i] / low[i]), extra)
            above[row] = np.hypot(np.log(high[i] / value[i]), extra)
        return _Parts(
            device,
            below,
            above,
            host,
            host_deviation,
            [limits[plan.place] for plan in plans],
            [_scaled(breakdowns[plan.place], device[row] * 1e3) for row, plan in enumerate(plans)],
        )

    def _device_plan(self, query: Query, place: int) -> _Device:
        """At which batches a predictor is asked, and what its answers there are multiplied by."""
        network = query.workload
        assert isinstance(network, Network)
        times, way = self.networks.kernel_times, way_of(query)
        chip = chip_of(query.device, network.precision)
        mode = lowering_mode(network.graph, network.precision, query.software)
        kernels = lowered(network.graph, mode)
        filled = filling_batch(times, kernels, chip, way)
        at = rungs(network.batch_size, filled)
        here = law_seconds(times, kernels, chip, network.batch_size, way)
        factors = []
        for batch in (at.lower, at.upper):
            there = law_seconds(times, kernels, chip, batch, way)
            if query.software.fuses and not self.networks.answers(query):
                # The operators' predictor launches one kernel for each operator.
                plain = lowered(network.graph, _unfused(mode))
                there = law_seconds(times, plain, chip, batch, "eager")
            factors.append(here / there)
        halvings = max(0.0, float(np.log2(filled / network.batch_size)))
        return _Device(place, at, (factors[0], factors[1]), halvings)

    def _host_bound(self, networks: Measurements) -> tuple[NDArray[np.bool_], Column]:
        """Which rows wait for the host, and its time of each, from what was measured."""
        measured = networks.values["latency_ms"] / 1e3
        plain = replace(self, host=HostTime())
        on_gpu = np.array([_runs_on_gpu(q) for q in networks.queries], dtype=np.bool_)
        device = np.full(len(networks), np.inf)
        if on_gpu.any():
            device[on_gpu] = plain._parts(networks.take(on_gpu).queries).device
        rest = np.maximum(measured**OVERLAP - np.minimum(device, measured) ** OVERLAP, 0.0)
        return rest > HOST_BOUND * measured**OVERLAP, rest ** (1.0 / OVERLAP)

    def _with_device_rows(self, networks: Measurements, others: Measurements | None = None) -> Self:
        """The device's predictors adapted on rows whose time is the device's own."""
        own: list[Measurements] = [] if others is None or not len(others) else [others]
        if len(networks):
            on_gpu = np.array([_runs_on_gpu(q) for q in networks.queries], dtype=np.bool_)
            own.append(networks.take(~on_gpu))
            gpu = networks.take(on_gpu)
            if len(gpu):
                own.append(self._at_rungs(gpu))
        rows = [part for part in own if len(part)]
        if not rows:
            return self
        joined = rows[0]
        for part in rows[1:]:
            joined = joined + part
        by_networks = np.array([self.networks.answers(q) for q in joined.queries], dtype=np.bool_)
        adapted = self
        if by_networks.any():
            adapted = replace(adapted, networks=self.networks.adapt(joined.take(by_networks)))
        if not by_networks.all():
            adapted = replace(adapted, operators=self.operators.adapt(joined.take(~by_networks)))
        return adapted

    def _at_rungs(self, networks: Measurements) -> Measurements:
        """Rows whose time is the device's own, at the batches that its predictors are asked for."""
        bound, host = self._host_bound(networks)
        measured = networks.values["latency_ms"] / 1e3
        device = (np.maximum(measured**OVERLAP - (host * bound) ** OVERLAP, 0.0)) ** (1 / OVERLAP)
        kept = networks.take(~bound)
        queries, seconds = [], []
        for query, own in zip(kept.queries, device[~bound], strict=True):
            plan = self._device_plan(query, 0)
            queries.append(_at(query, plan.rungs.lower))
            seconds.append(own / plan.factor[0])
        return replace(kept, queries=queries, values={"latency_ms": np.array(seconds) * 1e3})

    def save(self, folder: Path) -> None:
        """Each part in a folder of its own, the host's law as JSON."""
        write_content(
            folder,
            self.name,
            {"parts": [part.name for part in self.parts], "host": self.host.to_json()},
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
        return cls(networks, operators, HostTime.from_json(content["host"]))


def _runs_on_gpu(query: Query) -> bool:
    return query.workload.kind == "network" and query.device.kind == "gpu"


def _measured_networks(measurements: Measurements) -> Measurements:
    latency = measurements.values["latency_ms"]
    kept = [
        q.workload.kind == "network" and bool(ms > 0)
        for q, ms in zip(measurements.queries, latency.tolist(), strict=True)
    ]
    return measurements.take(np.array(kept, dtype=np.bool_))


def _at(query: Query, batch_size: int) -> Query:
    network = query.workload
    assert isinstance(network, Network)
    return replace(query, workload=replace(network, batch_size=batch_size))


def _unfused(mode: LoweringMode) -> LoweringMode:
    return mode._replace(compiled=False)


def _scaled(breakdown: Mapping[str, float], total_ms: float) -> Mapping[str, float]:
    whole = sum(breakdown.values())
    return {k: v * total_ms / whole for k, v in breakdown.items()} if whole > 0 else {}


def _joined(parts: _Parts) -> tuple[Column, Column, Column]:
    """Latency, low and high in seconds, each (n,); errors of device and host are independent."""
    device, host = parts.device**OVERLAP, parts.host**OVERLAP
    value = (device + host) ** (1.0 / OVERLAP)
    share = device / (device + host)
    reach = NORMAL_95 * parts.host_deviation * (1.0 - share)
    low = value * np.exp(-np.hypot(share * parts.device_low, reach))
    high = value * np.exp(np.hypot(share * parts.device_high, reach))
    return value, low, high
