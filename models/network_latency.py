"""Latency of networks on GPUs for every precision, batch size and runtime: device and host.

The device's time comes from predictors that were fitted on measured networks and kernels: the
first answers for half precision and for what a compiler fused, the geometric mean of both for full
precision. What neither was trained on, batches that do not fill the device, follows the kernels'
law. The host's time is a law of its own. Both run at once, so the latency is little more than the
longer of the two.
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
from forerun.features.lowering.mode import casts_of
from forerun.features.network_features import chip_of
from forerun.models.adaptation.few_rows import FewRows
from forerun.models.artifact import load_part, read_content, write_content
from forerun.models.batch_ladder import filling_batch, law_seconds, rungs
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
COVERAGE = 0.9
HOST_BOUND = 0.7
"""Device's time over the measured one below which a run says what the host takes."""
NARROW = ("fp8", "int8")
"""Precisions of which no network was measured."""
NETWORKS, OPERATORS = 0, 1
"""Positions in `NetworkLatency.parts`."""
DOUBLING_DEVIATION = 0.06
"""Standard deviation of the logarithm that each halving below the filling batch adds."""


class _Ask(NamedTuple):
    """One question to a predictor of the device's time, and what its answer counts for.

    Attributes:
        row: network that it is asked for.
        source: position in `NetworkLatency.parts`.
        query: the network at a batch size that fills the device.
        factor: by the kernels' law, from that batch size to the one in question.
        weight: in the mean of logarithms over the questions of a row; they add up to 1.
        extra: standard deviation of the logarithm that carrying over adds.
    """

    row: int
    source: int
    query: Query
    factor: float
    weight: float
    extra: float


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
        widths = self._widths(measurements)
        return replace(fitted._with_device_rows(measurements), widths=widths)

    def _widths(self, measurements: Measurements) -> tuple[float, float]:
        """Factors with which intervals hold nine of ten rows of families not adapted to.

        The rows are answered without having been seen, every family counts alike, and no interval
        is narrowed. The level is not raised for the dozen of families, as split conformal
        prediction would: on families left out that covered 97 to 100 %.
        """
        plain = replace(self, widths=(1.0, 1.0))
        parts = plain._parts(measurements.queries)
        value, low, high = _joined(parts)
        error = np.log(measurements.values["latency_ms"] / 1e3 / value)
        reach = np.where(error < 0, np.log(value / low), np.log(high / value))
        scores = np.abs(error) / reach
        family = measurements.groups.get("family", measurements.groups["device"])
        mine = parts.device >= parts.host
        return (
            _grouped_quantile(scores[mine], family[mine]),
            _grouped_quantile(scores[~mine], family[~mine]),
        )

    def without_published(self) -> Self:
        """The device's predictors as fitted on their own tables, nothing known of any host."""
        return replace(
            self,
            networks=replace(self.networks, few_rows=FewRows()),
            operators=replace(self.operators, kernels=FewRows(), networks=FewRows()),
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
            value, below, above = _joined(parts, self.widths)
            values[places], low[places], high[places] = value * 1e3, below * 1e3, above * 1e3
            for place, row in enumerate(places):
                limits[row] = parts.limits[place]
                host_ms = float((value[place] - parts.device[place]) * 1e3)
                breakdowns[row] = {**parts.breakdowns[place], "host": host_ms}
        return Predictions(
            {"latency_ms": values},
            {"latency_ms": low},
            {"latency_ms": high},
            COVERAGE,
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
        own: dict[int, list[int]] = {NETWORKS: [], OPERATORS: []}
        for row in rows:
            own[NETWORKS if self.networks.answers(queries[row]) else OPERATORS].append(row)
        return [
            (mine, self.parts[source].predict([queries[row] for row in mine]))
            for source, mine in own.items()
            if mine
        ]

    def _sources(self, query: Query) -> Sequence[tuple[int, float]]:
        """Which predictors say the device's time of a network, and their weights."""
        network = query.workload
        assert isinstance(network, Network)
        if network.graph.training or network.precision in NARROW:
            return ((OPERATORS, 1.0),)
        if query.software.fuses or casts_of(network.precision) != "fp32":
            return ((NETWORKS, 1.0),)
        return ((NETWORKS, 0.5), (OPERATORS, 0.5))

    def _asks(self, row: int, query: Query) -> list[_Ask]:
        """What the predictors of the device's time are asked for one network."""
        network = query.workload
        assert isinstance(network, Network)
        times, way = self.networks.kernel_times, way_of(query)
        if network.graph.training:
            way = "eager"
        chip = chip_of(query.device, network.precision)
        kernels = lowered(
            network.graph, lowering_mode(network.graph, network.precision, query.software)
        )
        filled = filling_batch(times, kernels, chip, way)
        at = rungs(network.batch_size, filled)
        here = law_seconds(times, kernels, chip, network.batch_size, way)
        extra = DOUBLING_DEVIATION * max(0.0, float(np.log2(filled / network.batch_size)))
        steps = [(at.lower, 1.0 - at.weight)]
        if at.upper != at.lower:
            steps.append((at.upper, at.weight))
        asks = []
        for batch, share in steps:
            factor = here / law_seconds(times, kernels, chip, batch, way)
            for source, weight in self._sources(query):
                asks.append(_Ask(row, source, _at(query, batch), factor, share * weight, extra))
        return asks

    def _parts(self, queries: Sequence[Query]) -> _Parts:
        """Times of the device and the host, with bounds."""
        host, host_deviation = self.host.seconds(queries)
        asks = [ask for row, query in enumerate(queries) for ask in self._asks(row, query)]
        logs, below, above, extra = np.zeros((4, len(queries)))
        limits: list[tuple[str, ...]] = [()] * len(queries)
        breakdowns: list[Mapping[str, float]] = [{}] * len(queries)
        for source in (NETWORKS, OPERATORS):
            mine = [ask for ask in asks if ask.source == source]
            if not mine:
                continue
            answer = self.parts[source].predict([ask.query for ask in mine])
            value = answer.values["latency_ms"]
            low, high = (side.get("latency_ms", value) for side in (answer.low, answer.high))
            for place, ask in enumerate(mine):
                logs[ask.row] += ask.weight * np.log(value[place] / 1e3 * ask.factor)
                below[ask.row] += ask.weight * np.log(value[place] / low[place])
                above[ask.row] += ask.weight * np.log(high[place] / value[place])
                extra[ask.row] = ask.extra
                limits[ask.row] = answer.limits[place]
                breakdowns[ask.row] = answer.breakdowns_ms[place]
        device, reach = np.exp(logs), NORMAL_95 * extra
        scaled = zip(breakdowns, (device * 1e3).tolist(), strict=True)
        return _Parts(
            device,
            np.hypot(below, reach),
            np.hypot(above, reach),
            host,
            host_deviation,
            limits,
            [_scaled(breakdown, ms) for breakdown, ms in scaled],
        )

    def _host_bound(self, networks: Measurements) -> tuple[NDArray[np.bool_], Column]:
        """Which rows wait for the host, and its time of each, from what was measured."""
        measured = networks.values["latency_ms"] / 1e3
        on_gpu = np.array([_runs_on_gpu(q) for q in networks.queries], dtype=np.bool_)
        device = np.full(len(networks), np.inf)
        if on_gpu.any():
            device[on_gpu] = self._parts(networks.take(on_gpu).queries).device
        rest = np.maximum(measured**OVERLAP - np.minimum(device, measured) ** OVERLAP, 0.0)
        seconds = rest ** (1.0 / OVERLAP)
        plausible = np.zeros(len(networks), dtype=np.bool_)
        if on_gpu.any():
            kept = networks.take(on_gpu).queries
            plausible[on_gpu] = HostTime().plausible(kept, seconds[on_gpu])
        return (device < HOST_BOUND * measured) & plausible, seconds

    def _with_device_rows(self, networks: Measurements, others: Measurements | None = None) -> Self:
        """The device's predictors adapted on rows whose time is the device's own."""
        own: dict[int, list[Measurements]] = {NETWORKS: [], OPERATORS: []}
        if others is not None and len(others):
            own[OPERATORS].append(others)
        if len(networks):
            on_gpu = np.array([_runs_on_gpu(q) for q in networks.queries], dtype=np.bool_)
            if not on_gpu.all():
                own[NETWORKS].append(networks.take(~on_gpu))
            if on_gpu.any():
                for source, rows in self._at_rungs(networks.take(on_gpu)).items():
                    own[source].append(rows)
        adapted = self
        if own[NETWORKS]:
            adapted = replace(adapted, networks=self.networks.adapt(_sum(own[NETWORKS])))
        if own[OPERATORS]:
            adapted = replace(adapted, operators=self.operators.adapt(_sum(own[OPERATORS])))
        return adapted

    def _at_rungs(self, networks: Measurements) -> dict[int, Measurements]:
        """Source -> rows whose time is the device's own, at the batches that it is asked for."""
        bound, host = self._host_bound(networks)
        measured = networks.values["latency_ms"] / 1e3
        device = (np.maximum(measured**OVERLAP - (host * bound) ** OVERLAP, 0.0)) ** (1.0 / OVERLAP)
        asks = [
            ask
            for row in np.flatnonzero(~bound).tolist()
            for ask in self._asks(row, networks.queries[row])
        ]
        found = {}
        for source in (NETWORKS, OPERATORS):
            mine = [ask for ask in asks if ask.source == source]
            if mine:
                rows = networks.take([ask.row for ask in mine])
                seconds = np.array([device[ask.row] / ask.factor for ask in mine])
                queries = [ask.query for ask in mine]
                found[source] = replace(rows, queries=queries, values={"latency_ms": seconds * 1e3})
        return found

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


def _at(query: Query, batch_size: int) -> Query:
    network = query.workload
    assert isinstance(network, Network)
    return replace(query, workload=replace(network, batch_size=batch_size))


def _sum(parts: Sequence[Measurements]) -> Measurements:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _scaled(breakdown: Mapping[str, float], total_ms: float) -> Mapping[str, float]:
    whole = sum(breakdown.values())
    return {k: v * total_ms / whole for k, v in breakdown.items()} if whole > 0 else {}


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
    parts: _Parts, widths: tuple[float, float] = (1.0, 1.0)
) -> tuple[Column, Column, Column]:
    """Latency, low and high in seconds, each (n,); errors of device and host are independent."""
    device, host = parts.device**OVERLAP, parts.host**OVERLAP
    value = (device + host) ** (1.0 / OVERLAP)
    share = device / (device + host)
    reach = NORMAL_95 * parts.host_deviation * (1.0 - share)
    wider = np.where(parts.device >= parts.host, *widths)
    low = value * np.exp(-wider * np.hypot(share * parts.device_low, reach))
    high = value * np.exp(wider * np.hypot(share * parts.device_high, reach))
    return value, low, high
