"""Training domain of a predictor of whole networks: devices, phases, precisions and ranges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from forerun.data.columns import Column
from forerun.data.device import Device
from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.features.lowering.mode import casts_of
from forerun.features.networks.features import DEVICE_RATIOS, assumed, chip_of, device_ratios
from forerun.models.domain.device_novelty import device_position, novelty_limits
from forerun.models.domain.feature_range import FeatureRange, KnownDevices
from forerun.models.limit import LATENCY, Limit

_NARROW = ("fp8", "int8", "tf32")


@dataclass(frozen=True)
class NetworkDomain:
    """Devices, phases, precisions and feature ranges of the training rows.

    Attributes:
        known: devices of the training rows.
        domains: device kind -> range of the features on devices of that kind.
        device_ranges: device kind -> range of ratios of the devices' figures.
        trained_on: triples (device kind, phase, `fp32` or `half`) of the training rows.
        positions: training GPUs in the space of `forerun.models.domain.device_novelty`.
        farthest: distance to the nearest training network up to which a network is in domain.
    """

    known: KnownDevices = field(default_factory=KnownDevices)
    domains: Mapping[str, FeatureRange] = field(default_factory=dict)
    device_ranges: Mapping[str, FeatureRange] = field(default_factory=dict)
    trained_on: frozenset[tuple[str, str, str]] = frozenset()
    positions: tuple[tuple[float, ...], ...] = ()
    farthest: float = float("inf")

    @classmethod
    def of(cls, queries: Sequence[Query], ranges: Mapping[str, FeatureRange]) -> "NetworkDomain":
        """The domain of training rows.

        Args:
            queries: networks of the training rows.
            ranges: device kind -> range of the features on devices of that kind.
        """
        return cls(
            known=KnownDevices.of([query.device for query in queries]),
            domains=ranges,
            device_ranges=_device_ranges(queries),
            trained_on=frozenset(_training_condition(query) for query in queries),
            positions=tuple(
                tuple(device_position(device).tolist())
                for device in sorted({q.device for q in queries}, key=lambda d: d.name)
                if device.kind == "gpu" and device.has_sheet
            ),
        )

    def answers(self, query: Query) -> bool:
        """Whether the query is a forward graph whose device kind, phase and precision are known.

        Half precision is one kind with or without autocast. Narrower formats were never measured.
        """
        network = query.workload
        if not isinstance(network, Network) or network.graph.training or not query.has_bound:
            return False
        return network.precision not in _NARROW and _training_condition(query) in self.trained_on

    def limits(self, query: Query, features: Column, adapted: bool = False) -> tuple[Limit, ...]:
        """One limit for each property of a query that is outside the training domain.

        Args:
            query: a network that `answers` accepts.
            features: its feature values, in the order of the ranges.
            adapted: whether enough rows were measured on the device.
        """
        network, device = query.network, query.device
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
        assumptions = [f"{figure} is not on the device's sheet" for figure in assumed(device)]
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


def _training_condition(query: Query) -> tuple[str, str, str]:
    network = query.network
    casts = "fp32" if casts_of(network.precision) == "fp32" else "half"
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
