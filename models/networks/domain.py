"""Training domain of a predictor of whole networks: devices, phases, precisions and ranges."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from forerun.data.columns import Column
from forerun.data.device import Device
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.features.chips import DEVICE_RATIOS, assumed, chip_of, device_ratios
from forerun.features.lowering.mode import casts_of
from forerun.models.domain.device_novelty import device_position, novelty_limits
from forerun.models.domain.feature_range import FeatureRange, KnownDevices
from forerun.models.limit import LATENCY, Limit

ENOUGH_ROWS = 100
"""Training rows from which on errors on a device are those of other families and not of another
device."""
NARROW = ("fp8", "int8")
"""Number formats without a measured network."""


@dataclass(frozen=True)
class NetworkDomain:
    """Devices, phases, precisions and feature ranges of the training rows.

    Attributes:
        known: devices with at least `ENOUGH_ROWS` training rows.
        domains: device kind -> range of the features on devices of that kind.
        device_ranges: device kind -> range of ratios of the devices' figures.
        trained_on: triples (device kind, phase, `fp32`, `half` or `narrow`) of the training rows.
        with_operators: devices of training rows that are single operators.
        positions: training GPUs in the space of `forerun.models.domain.device_novelty`.
        farthest: distance to the nearest training network up to which a network is in domain.
    """

    known: KnownDevices = field(default_factory=KnownDevices)
    domains: Mapping[str, FeatureRange] = field(default_factory=dict)
    device_ranges: Mapping[str, FeatureRange] = field(default_factory=dict)
    trained_on: frozenset[tuple[str, str, str]] = frozenset()
    with_operators: KnownDevices = field(default_factory=KnownDevices)
    positions: tuple[tuple[float, ...], ...] = ()
    farthest: float = float("inf")

    @classmethod
    def of(cls, queries: Sequence[Query], ranges: Mapping[str, FeatureRange]) -> "NetworkDomain":
        """The domain of training rows.

        Args:
            queries: networks and single operators of the training rows.
            ranges: device kind -> range of the features on devices of that kind.
        """
        networks = [query for query in queries if query.run.kind == "network"]
        devices = Counter(query.device for query in queries)
        return cls(
            known=KnownDevices.of([device for device, n in devices.items() if n >= ENOUGH_ROWS]),
            domains=ranges,
            device_ranges=_device_ranges(networks),
            trained_on=frozenset(map(_training_condition, networks)),
            with_operators=KnownDevices.of([q.device for q in queries if q.run.kind == "kernel"]),
            positions=tuple(
                tuple(device_position(device).tolist())
                for device in sorted({q.device for q in queries}, key=lambda d: d.name)
                if device.kind == "gpu" and device.has_sheet
            ),
        )

    def answers(self, query: Query) -> bool:
        """Whether the query is a network on a kind of device that was trained on, or an operator
        on a device whose operators were.
        """
        if not query.has_bound or not self.trained_on:
            return False
        if isinstance(query.workload, Kernel):
            return query.device in self.with_operators
        kinds = {kind for kind, _, _ in self.trained_on}
        return isinstance(query.workload, Network) and query.device.kind in kinds

    def limits(self, query: Query, features: Column, adapted: bool = False) -> tuple[Limit, ...]:
        """One limit for each property of a query that is outside the training domain.

        Args:
            query: a network or an operator that `answers` accepts.
            features: its feature values, in the order of the ranges.
            adapted: whether enough rows were measured on the device.
        """
        device = query.device
        if isinstance(query.workload, Kernel):
            return tuple(Limit(line, LATENCY) for line in assumed_figures(device))
        network = query.network
        lines: list[str] = []
        ranges: list[Limit] = []
        if _training_condition(query) not in self.trained_on:
            lines.append(f"{network.phase} in {network.precision} is not in the training set")
        if query.software.runtime == "onnxruntime":
            lines.append("runtime is onnxruntime, the training set has eager and compiled torch")
        unknown = network.graph.unknown
        if unknown:
            names = ", ".join(sorted(unknown))
            lines.append(f"{sum(unknown.values())} operators are of no known kind: {names}")
        if device.kind == "gpu" and np.isfinite(self.farthest):
            ranges.extend(() if adapted else self._device_limits(device))
        elif device.kind in self.domains:
            ranges.extend(self.domains[device.kind].outside(features, LATENCY))
            if not adapted and device not in self.known and device.kind in self.device_ranges:
                ratios = device_ratios(chip_of(device, network.precision))
                ranges.extend(self.device_ranges[device.kind].outside(ratios, LATENCY))
        assumptions = assumed_figures(device)
        first, last = ([Limit(line, LATENCY) for line in part] for part in (lines, assumptions))
        return (*first, *ranges, *last)

    def _device_limits(self, device: Device) -> tuple[Limit, ...]:
        """A limit where a GPU is unlike every GPU of the training rows."""
        if device in self.known or not self.positions:
            return ()
        return novelty_limits(device, map(np.array, self.positions))

    def far_limit(self, novelty: float, differs: str) -> Limit:
        """The limit for a network whose kernels are unlike those of the training networks.

        Args:
            novelty: distance to the nearest training network.
            differs: name of the kind of kernel whose share of the time differs most.
        """
        message = (
            f"the network's kernels are unlike those of the training networks, most of all the "
            f"share of {differs}: {novelty:.2f} away from the nearest, up to "
            f"{self.farthest:.2f} is in domain"
        )
        return Limit(message, LATENCY, "outside", "kernel_mix_novelty", novelty, 0.0, self.farthest)


def assumed_figures(device: Device) -> list[str]:
    """What is estimated because the device's sheet does not give it, one sentence each."""
    return [f"{figure} is not on the device's sheet" for figure in assumed(device)]


def _training_condition(query: Query) -> tuple[str, str, str]:
    network = query.network
    casts = "narrow" if network.precision in NARROW else casts_of(network.precision)
    casts = "half" if casts == "autocast" else casts
    return query.device.kind, network.phase, casts


def _device_ranges(queries: Sequence[Query]) -> dict[str, FeatureRange]:
    seen = {(id(q.device), q.run.precision): q for q in queries}
    ratios: dict[str, list[Column]] = {}
    for query in seen.values():
        chip = chip_of(query.device, query.run.precision)
        ratios.setdefault(query.device.kind, []).append(device_ratios(chip))
    return {
        kind: FeatureRange.of(DEVICE_RATIOS, np.array(rows))
        for kind, rows in sorted(ratios.items())
    }
